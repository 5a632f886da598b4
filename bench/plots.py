"""Plots as SVG: the same bytes for the same numbers, and readable on white and on dark pages."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot

from bench.measures import depth
from bench.results import Results
from bench.stats import paired, spread

INK = "#808890"  # grey enough for both backgrounds
OURS, PEER, YARDSTICK = "#2f81f7", "#d08b3c", "#8c959f"
STYLE = {
    "svg.hashsalt": "rowlock",
    "svg.fonttype": "path",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 10,
}


def draw(results: Results, folder: Path) -> list[str]:
    """The names of the files that could be drawn."""
    drawn = []
    with matplotlib.rc_context(STYLE):
        for name, measure, plot in (
            ("drain.svg", "drain-postgres", drain),
            ("depth.svg", "depth", depth_ratios),
            ("pinned.svg", "pinned", pinned),
        ):
            if measure in results.sections and results.sections[measure].samples:
                figure, axes = pyplot.subplots(figsize=(8, 4), layout="constrained")
                plot(results, axes)
                figure.savefig(folder / name, transparent=True, metadata={"Date": None})
                pyplot.close(figure)
                drawn.append(name)
    return drawn


def colour(system: str) -> str:
    return {"rowlock": OURS, "raw": YARDSTICK}.get(system, PEER)


def drain(results: Results, axes: Any) -> None:
    """Bars of the medians with lowest and highest as whiskers: one process solid, two processes pale."""
    bars = []
    for engine in ("postgres", "sqlite"):
        measure = f"drain-{engine}"
        for system in results.systems_of(measure):
            for processes, case in enumerate(("1 process", "2 processes")):
                if found := spread(results.series(measure, case, system).values()):
                    bars.append((f"{system}, {engine}, {case}", found, colour(system), 0.5 if processes else 1.0))
    for place, (_, found, paint, alpha) in enumerate(bars):
        whiskers = [[found.median - found.low], [found.high - found.median]]
        axes.barh(place, found.median, color=paint, alpha=alpha, xerr=whiskers, ecolor=INK, height=0.75)
    axes.set_yticks(range(len(bars)), [bar[0] for bar in bars])
    axes.invert_yaxis()
    axes.set_xlabel("no-op jobs a second")
    axes.figure.set_figheight(1 + 0.28 * len(bars))


def depth_ratios(results: Results, axes: Any) -> None:
    """The paired ratios of each case as points, their median as a bar."""
    shallow = results.series("depth", depth.SHALLOW, "rowlock")
    cases = [case.name for case in depth.CASES[1:]]
    for place, case in enumerate(cases):
        ratios = paired(results.series("depth", case, "rowlock"), shallow)
        if found := spread(ratios):
            axes.barh(place, found.median, color=OURS, height=0.6)
            axes.plot(ratios, [place] * len(ratios), "o", color=INK, markersize=4)
    axes.axvline(0.85, color=PEER, linestyle="--")
    axes.set_yticks(range(len(cases)), cases)
    axes.invert_yaxis()
    axes.set_xlabel(f"rate / rate with {depth.SHALLOW} (dashed: the target)")


def pinned(results: Results, axes: Any) -> None:
    """The rate of each tenth against the first: the median of the rounds."""
    for system, rounds in sorted(results.sections["pinned"].curves.items()):
        tenths = zip(*([rate / rates[0] for rate in rates] for rates in rounds), strict=True)
        line = [found.median for tenth in tenths if (found := spread(tenth))]
        ours = system in ("rowlock", "raw")
        style = {"color": colour(system)} if ours else {"linestyle": "--"}
        axes.plot(range(1, 11), line, marker="o", markersize=3, label=system, **style)
    axes.axhline(0.7, color=PEER, linestyle=":")
    axes.set_xlabel("tenth of the jobs")
    axes.set_ylabel("rate / rate of the first tenth")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
