"""A steady load beside a held snapshot: every claim finds a nearly empty queue, and every job that was claimed has left
an index entry that cannot be removed. Only Rowlock, on PostgreSQL.

What is timed is the claim statement, in the worker and as the worker sees it: the median of the claims in the first
seconds and in the last ones.
"""

from pathlib import Path

from bench.catalog import Described
from bench.drivers import read_claims
from bench.measures.pinned import snapshot
from bench.processes import Broken
from bench.runner import Bench, Run
from bench.stats import percentile

RATE = 800  # jobs a second, in a hundred commits
FIRST, LAST, RATIO = "claim p50, first seconds", "claim p50, last seconds", "claim p50, last seconds / first seconds"
WARM_UP = 0.02  # of the time: the worker connects and prepares its statements


def postgres(bench: Bench) -> None:
    """Steady load beside a held snapshot: claim times at the end against those at the beginning."""
    plan = bench.plan
    bench.results.note(
        f"{RATE} jobs a second for {plan.steady_seconds:g} s; first and last {window(bench):g} s of it, after a warm-up"
    )
    bench.interleave([once_for(bench, bench.one("postgres", "rowlock"))])


def once_for(bench: Bench, system: Described) -> Run:
    def once(number: int) -> None:
        claims = run(bench, system, bench.folder / f"claims-{system.name}-{number}")
        began, ended = claims[0][0], claims[-1][0]
        start = began + WARM_UP * (ended - began)
        first = p50(claims, start, start + window(bench))
        last = p50(claims, ended - window(bench), ended)
        bench.record(FIRST, system.name, number, first * 1000, "ms")
        bench.record(LAST, system.name, number, last * 1000, "ms")
        bench.record(RATIO, system.name, number, last / first, "×")

    return Run(f"{system.name}, steady", system, once, bench.plan.steady_rounds)


def window(bench: Bench) -> float:
    return min(10.0, bench.plan.steady_seconds / 4)


def run(bench: Bench, system: Described, file: Path) -> list[tuple[float, float]]:
    """(moment, seconds) of every claim while the load lasted."""
    seconds = bench.plan.steady_seconds
    with bench.database(system) as url:
        bench.checkpoint()
        with snapshot(url), bench.workers(system, url, claims=file) as workers:
            producer = bench.start(system, "steady", url, rate=RATE, seconds=seconds)
            produced = producer.wait(seconds + 60)["produced"]
            handled = workers[0].handled
    if produced < 0.9 * RATE * seconds or handled < 0.9 * produced:
        raise Broken(f"{system.name}: {produced:,} of {RATE * seconds:,.0f} jobs were enqueued and {handled:,} handled")
    return read_claims(file)


def p50(claims: list[tuple[float, float]], start: float, end: float) -> float:
    found = [took for moment, took in claims if start <= moment <= end]
    if not found:
        raise Broken("no claim was made in a window that is measured")
    return percentile(found, 0.5)
