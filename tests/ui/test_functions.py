"""The functions of the pages that need no browser, tested by Node's own test runner."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_functions_of_the_pages_do_what_their_tests_say() -> None:
    done = subprocess.run(
        [sys.executable, "ui/build.py", "--test"], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pass 0" not in done.stdout
