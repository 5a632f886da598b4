"""Tasks: your functions, their arguments and options, and enqueueing jobs of them."""
