"""`python -m rowlock`: the same as the command `rowlock`."""

from rowlock.cli.main import run

if __name__ == "__main__":  # children of a spawned process import this module without meaning to run it
    run()
