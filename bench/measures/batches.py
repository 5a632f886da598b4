"""What counting costs: jobs of one batch against the same jobs without one. Only Rowlock.

Blocks of both stand in one queue, two neighbours are a pair, and one worker drains them all: what slows the machine
down for a while meets both alike. Handled jobs are counted, as in depth, and the beginning of a block is not timed:
outcomes of the block before are still written then.
"""

from collections.abc import Sequence

from bench.catalog import Described
from bench.measures.pinned import moment
from bench.runner import Bench, Run
from bench.waits import follow

ONE_BATCH, NO_BATCH = "jobs of one batch", "jobs without a batch"
PAIRS = 5
WARM_UP, PAIRED = "p", ("pb", "bp")  # p: plain, b: of the batch; who is first changes from pair to pair
SETTLING = 0.3  # of a block


def postgres(bench: Bench) -> None:
    """Batch on PostgreSQL."""
    on(bench, "postgres")


def sqlite(bench: Bench) -> None:
    """Batch on SQLite."""
    on(bench, "sqlite")


def on(bench: Bench, engine: str) -> None:
    system = bench.one(engine, "rowlock")
    bench.results.note(
        f"{bench.plan.batch_jobs:,} jobs of one batch and as many of none, in {2 * PAIRS} blocks by turns"
    )

    def once(number: int) -> None:
        blocks = WARM_UP + "".join(PAIRED[pair % 2] for pair in range(PAIRS))
        rates = drained(bench, system, blocks, bench.plan.batch_jobs // PAIRS)
        for pair in range(PAIRS):
            for place in (1 + 2 * pair, 2 + 2 * pair):
                case = ONE_BATCH if blocks[place] == "b" else NO_BATCH
                bench.record(case, system.name, number * PAIRS + pair, rates[place], "jobs/s")

    bench.interleave([Run(ONE_BATCH, system, once, bench.plan.batch_rounds)])


def drained(bench: Bench, system: Described, blocks: str, each: int) -> Sequence[float]:
    """Jobs a second in each block."""
    with bench.database(system) as url:
        total = bench.fill(system, url, len(blocks) * each, blocks=blocks)
        bench.checkpoint()
        with bench.workers(system, url) as workers:
            line = [(now, sum(counts)) for now, counts in follow(workers, total)]
    timed = each * (1 - SETTLING)
    ends = [each * (place + 1) for place in range(len(blocks))]
    return [timed / (moment(line, end) - moment(line, end - timed)) for end in ends]
