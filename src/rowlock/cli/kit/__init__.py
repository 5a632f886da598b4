"""What several verbs share: options, output, exit codes, the target database."""
