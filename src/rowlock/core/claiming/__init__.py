"""Which jobs a worker asks for next. Pure."""
