"""The report: README.md with tables, results.json with every sample, and plots."""

import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.results import Results
from bench.runner import shown
from bench.server import disk_folder, filesystem
from bench.stats import Spread, spread
from bench.targets import Verdict, judge

TITLES = {
    "drain-postgres": "Drain of no-op jobs, PostgreSQL",
    "drain-sqlite": "Drain of no-op jobs, SQLite",
    "enqueue-postgres": "Enqueue, PostgreSQL",
    "enqueue-sqlite": "Enqueue, SQLite",
    "pickup-postgres": "Pickup on an idle queue, PostgreSQL",
    "pickup-sqlite": "Pickup on an idle queue, SQLite, from one process to another",
    "delayed": "Delayed jobs: how late they start",
    "depth": "Depth: claim and settle beside much ballast",
    "pinned": "Pinned horizon: a snapshot held open while the jobs pass",
    "steady": "A steady load beside a held snapshot",
    "waiting": "Waiting work",
    "idle": "Idle workers",
    "memory": "Memory over many jobs",
    "wakeups": "Eight concurrent enqueuers",
    "head-postgres": "Free sources beside a saturated one, PostgreSQL",
    "head-sqlite": "Free sources beside a saturated one, SQLite",
    "sources-postgres": "Very many sources, PostgreSQL",
    "sources-sqlite": "Very many sources, SQLite",
    "blocked": "Idle workers before blocked jobs",
    "crowd-postgres": "An open source beside many closed ones, PostgreSQL",
    "crowd-sqlite": "An open source beside many closed ones, SQLite",
    "batch-postgres": "The jobs of one batch, PostgreSQL",
    "batch-sqlite": "The jobs of one batch, SQLite",
    "api-postgres": "The job API, PostgreSQL",
    "api-sqlite": "The job API, SQLite",
}
PLOTS = {"drain-postgres": "drain.svg", "depth": "depth.svg", "pinned": "pinned.svg"}
INTRO = """# Benchmarks

Written by `make bench` or `make bench-full`; every sample is in [results.json](results.json), how it is measured in
[bench/README.md](../../bench/README.md). A figure is the median of its rounds, with the lowest and the highest in
brackets. A ratio is taken within each round and the median of those ratios decides, because the machine is noisy:
compare within a table, not across tables.
"""


def write(results: Results, folder: Path) -> None:
    """Everything into the folder. What an earlier run measured and this one did not stays."""
    folder.mkdir(parents=True, exist_ok=True)
    results.keep_from(folder / "results.json")
    results.save(folder / "results.json")
    from bench import plots  # here, because only a report needs matplotlib

    drawn = plots.draw(results, folder)
    (folder / "README.md").write_text(text(results, drawn))


def text(results: Results, drawn: Iterable[str]) -> str:
    parts = [INTRO, "## Targets\n", verdict_table(judge(results)), "## Where and with what\n", surroundings(results)]
    names = [name for name in TITLES if name in results.sections]
    for name in names:
        section = results.sections[name]
        parts += [f"## {TITLES[name]}\n"]
        if PLOTS.get(name) in drawn:
            parts += [f"![{TITLES[name]}]({PLOTS[name]})\n"]
        parts += [measure_table(results, name)]
        parts += [f"- {note}" for note in section.notes] + ([""] if section.notes else [])
        parts += [f"Measured on {section.when} ({section.mode}) in {section.seconds:.0f} s.\n"]
    if results.broken:
        parts += ["## What broke\n", *(f"- {line.splitlines()[0]}" for line in results.broken), ""]
    return "\n".join(parts)


def verdict_table(verdicts: Sequence[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        target, found = verdict.target, verdict.measured
        bound = ("≥ " if target.at_least else "≤ ") + f"{target.bound:g} {target.unit}"
        measured = spread_shown(found, target.unit) if found else "–"
        rows.append(
            [target.id, target.text, bound, measured, str(found.rounds if found else 0), verdict.against, verdict.word]
        )
    return table(["", "target", "bound", "measured", "rounds", "against", ""], rows)


def measure_table(results: Results, measure: str) -> str:
    """Systems down, cases across; where only Rowlock was measured, cases down."""
    cases, systems = results.cases(measure), results.systems_of(measure)
    heads = [f"{case} ({results.unit(measure, case)})" for case in cases]

    def cell(case: str, system: str) -> str:
        found = spread(results.series(measure, case, system).values())
        return spread_shown(found, "") if found else "–"

    if len(systems) == 1:
        rows = [[head, cell(case, systems[0])] for head, case in zip(heads, cases, strict=True)]
        return table(["", systems[0]], rows)
    order = sorted(systems, key=lambda system: (system != "rowlock", system != "raw", system))
    return table(["", *heads], [[system, *(cell(case, system) for case in cases)] for system in order])


def spread_shown(found: Spread, unit: str) -> str:
    if found.rounds == 1:
        return shown(found.median, unit)
    return f"{shown(found.median, unit)} ({shown(found.low, '')} – {shown(found.high, '')})"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown that is also readable as it stands."""
    widths = [max(3, *(len(row[column]) for row in (heads, *rows))) for column in range(len(heads))]
    lines = [heads, ["-" * width for width in widths], *rows]
    cells = [" | ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join(f"| {line} |" for line in cells) + "\n"


def surroundings(results: Results) -> str:
    facts = [[key, value] for key, value in results.machine.items()]
    facts += [[f"PostgreSQL: {key}", value] for key, value in results.server.items()]
    rows = [[one["name"], one["engine"], one["version"], str(one["slots"]), one["settings"]] for one in results.systems]
    left_out = [f"- without {name}: {why}" for name, why in results.left_out.items()]
    return "\n".join(
        [
            table(["", ""], facts),
            table(["system", "engine", "version", "slots for no-op jobs", "settings"], rows),
            *left_out,
            "",
        ]
    )


def machine() -> dict[str, str]:
    """What the numbers depend on; nothing that names the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.machine()}",
        "file system": filesystem(disk_folder()) or "unknown",
        "Python": platform.python_version(),
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    found = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else "unknown"
