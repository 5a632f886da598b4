"""On which engines a test of a sample system runs: on both, unless the database has no part in what it shows."""

import pytest

# For web pages, logs, words and refusals, which are the same whatever the database is.
ONE_ENGINE = pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
