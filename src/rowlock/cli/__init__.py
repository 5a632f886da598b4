"""The command `rowlock`: one module for each group of verbs. What is heavy is imported inside the verbs."""
