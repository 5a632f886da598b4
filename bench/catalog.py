"""The systems that can be measured, and how each is started."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

OURS = ("rowlock", "raw")  # every other system is a peer


@dataclass(frozen=True)
class Candidate:
    """A system as it stands in this folder, before it has been asked what it is."""

    name: str
    engine: str
    module: str
    rate: int  # jobs a second to expect, only so that a slow system gets fewer jobs
    slots: int = 100  # jobs at once when they do nothing; work that waits always gets 100
    has_bulk: bool = True
    decides: bool = True  # whether a target is held against it in every measure; others are there for context
    source: str = ""  # folder of the package to measure, if it is not the installed one

    @property
    def is_ours(self) -> bool:
        return self.name in OURS

    def command(self) -> list[str]:
        if self.module.endswith(".mjs"):
            return [shutil.which("node") or "node", str(HERE / "systems" / self.module)]
        return [sys.executable, "-m", f"bench.systems.{self.module}"]

    def missing(self) -> str | None:
        """Why it cannot even be started, if so."""
        if not self.module.endswith(".mjs"):
            return None if (HERE / "systems" / f"{self.module}.py").exists() else "its adapter is not in this folder"
        if shutil.which("node") is None:
            return "it needs Node.js, and there is no `node` on PATH"
        folder = (HERE / "systems" / self.module).parent
        return None if (folder / "node_modules").is_dir() else "its packages are not installed; `make bench` does that"


@dataclass(frozen=True, kw_only=True)
class Described(Candidate):
    """A system that runs here, with what it says of itself."""

    version: str
    settings: str
    left_sql: str


# Slots by short sweeps of each. PgQueuer claims half of its slots at a time, so a batch of 500 takes 1,000; Awa and
# Chancy are faster with many; Procrastinate and Huey are faster on no-op jobs with few slots than with many.
CANDIDATES = (
    Candidate("raw", "postgres", "raw_postgres", 50_000, decides=False),
    Candidate("rowlock", "postgres", "rowlock_variants", 30_000),
    Candidate("graphile", "postgres", "graphile/main.mjs", 25_000),
    Candidate("pgqueuer", "postgres", "pgqueuer", 17_000, slots=1_000),
    Candidate("awa", "postgres", "awa", 6_000, slots=500, decides=False),
    Candidate("chancy", "postgres", "chancy", 4_000, slots=500, decides=False),
    Candidate("procrastinate", "postgres", "procrastinate", 600, slots=10, decides=False),
    Candidate("raw", "sqlite", "raw_sqlite", 70_000, decides=False),
    Candidate("rowlock", "sqlite", "rowlock_variants", 30_000),
    Candidate("huey", "sqlite", "huey", 3_000, slots=1, has_bulk=False),
)
