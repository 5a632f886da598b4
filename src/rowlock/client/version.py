"""This package's version."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("rowlock")
except PackageNotFoundError:  # a source tree that was never installed
    VERSION = "0.0.0"

__version__ = VERSION
