"""`python -m bench`: measure, print the verdicts, write the report."""

import argparse
import dataclasses
import signal
import sys
import time
import traceback
from pathlib import Path

from bench import report
from bench.catalog import CANDIDATES
from bench.measures import MEASURES
from bench.plan import FULL, QUICK, SMOKE, Plan
from bench.processes import Broken
from bench.results import Results
from bench.runner import Bench
from bench.targets import judge

DEFAULT_OUT = Path("docs/benchmarks")


def main() -> int:
    options = arguments()
    # Ended by a signal, it must still end what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = chosen_plan(options)
    try:
        with Bench(plan, options.systems) as bench:
            bench.results.machine = report.machine()
            for name in options.only:
                measure(bench, name)
            results = bench.results
    except Broken as error:
        print(f"broken: {error}", file=sys.stderr)
        return 1
    if options.out:
        report.write(results, options.out)
    return finish(results, options)


def measure(bench: Bench, name: str) -> None:
    section = bench.results.begin(name)
    began = time.monotonic()
    try:
        MEASURES[name](bench)
    except Broken as error:
        bench.broken(str(error))
    except Exception as error:  # a fault of this measure must not cost the others their numbers
        traceback.print_exc()
        bench.broken(repr(error))
    section.seconds = time.monotonic() - began
    bench.say(f"{name} took {section.seconds:.0f} s")


def finish(results: Results, options: argparse.Namespace) -> int:
    measured = {name for name in options.only}
    verdicts = [verdict for verdict in judge(results) if verdict.target.value.measure in measured]
    print("\n" + report.verdict_table(verdicts))
    for name in options.only:
        print(f"{name:20} {results.sections[name].seconds:6.0f} s")
    print(f"{'together':20} {sum(results.sections[name].seconds for name in options.only):6.0f} s")
    if results.mode == "smoke":
        print("\na smoke run shows that everything runs; its numbers mean nothing")
    if options.out:
        print(f"\nwritten to {options.out}")
    for line in results.broken:
        print(f"broken: {line}", file=sys.stderr)
    missed = any(verdict.met is not True for verdict in verdicts)
    return 1 if results.broken or (options.strict and missed) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="more rounds and 1,000,000 rows of depth (an hour)")
    size.add_argument("--smoke", action="store_true", help="tiny counts: does everything run?")
    parser.add_argument("--only", type=names, help="measures, or how their names begin: drain-postgres,pickup")
    parser.add_argument("--systems", type=names, default=[], help="only these systems, with raw and rowlock")
    parser.add_argument("--pairs", type=int, help="rounds of what decides a target")
    parser.add_argument("--out", type=Path, help=f"folder of the report; {DEFAULT_OUT} if everything is measured")
    parser.add_argument("--strict", action="store_true", help="exit 1 also when a target is missed or not measured")
    options = parser.parse_args()
    whole = not (options.only or options.systems or options.smoke or options.pairs)
    options.only = chosen_measures(parser, options.only, chosen_plan(options))
    unknown = set(options.systems) - {one.name for one in CANDIDATES}
    if unknown:
        parser.error(f"no such system: {', '.join(sorted(unknown))}")
    if options.systems:
        options.systems = [*options.systems, "raw", "rowlock"]
    if options.pairs is not None and options.pairs < 1:
        parser.error("--pairs must be at least 1")
    if options.out is None and whole:
        options.out = DEFAULT_OUT
    return options


def names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def chosen_measures(parser: argparse.ArgumentParser, wanted: list[str] | None, plan: Plan) -> list[str]:
    for name in wanted or ():
        if not any(known.startswith(name) for known in MEASURES):
            parser.error(f"no such measure: {name}; there are {', '.join(MEASURES)}")
    if not wanted:
        return [known for known in MEASURES if known not in plan.without]
    return [known for known in MEASURES if any(known.startswith(name) for name in wanted)]


def chosen_plan(options: argparse.Namespace) -> Plan:
    plan = FULL if options.full else SMOKE if options.smoke else QUICK
    if options.pairs is None:
        return plan
    rounds = ("pairs", "depth_rounds", "pinned_rounds", "memory_rounds", "sources_rounds", "batch_rounds")
    return dataclasses.replace(plan, **dict.fromkeys(rounds, options.pairs))


if __name__ == "__main__":
    sys.exit(main())
