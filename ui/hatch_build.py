"""The packaging hook: the pages are built before a wheel, a source distribution or an editable install is made."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PagesHook(BuildHookInterface):
    """Runs ui/build.py with the Python of the build environment, which has Node. It returns at once when the pages are
    up to date: hatchling calls it for the metadata already."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the pages. A wheel without them is an error; an editable install works without, and its server shows
        a page that says what to do."""
        done = subprocess.run([sys.executable, str(Path(self.root) / "ui" / "build.py")])
        if done.returncode and version != "editable":
            raise RuntimeError("the pages could not be built, see above; the wheel would be without its dashboard")
