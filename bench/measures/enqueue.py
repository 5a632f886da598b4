"""How fast jobs are enqueued: one at a time (each committed), and in bulk."""

from bench.catalog import Described
from bench.runner import Bench, Run

ONE, LISTENED, BULK, KEYED = "one at a time", "one at a time, a worker listening", "bulk", "keyed bulk"


def postgres(bench: Bench) -> None:
    """Enqueue on PostgreSQL: all systems."""
    everyone(bench, "postgres")


def sqlite(bench: Bench) -> None:
    """Enqueue on SQLite: all systems."""
    everyone(bench, "sqlite")


def everyone(bench: Bench, engine: str) -> None:
    systems = bench.on(engine)
    runs = [single(bench, system) for system in systems]
    runs += [single(bench, system, listened=True) for system in systems if system.is_ours]
    runs += [bulk(bench, system) for system in systems if system.has_bulk]
    runs += [keyed(bench, system) for system in systems if system.name == "rowlock"]
    bench.interleave(runs)


def single(bench: Bench, system: Described, listened: bool = False) -> Run:
    """One producer, each job committed before the next; with an idle worker beside it if `listened`."""
    case, jobs = (LISTENED if listened else ONE), bench.plan.singles

    def once(number: int) -> None:
        with bench.database(system) as url, bench.workers(system, url, int(listened)) as workers:
            if listened:
                # Handled once means started: its start-up must not compete with the producer.
                bench.run(system, "ping", url, jobs=1, slot_file=workers[0].slot_file)
            bench.checkpoint()
            seconds = bench.run(system, "enqueue", url, jobs=jobs)["seconds"]
            bench.record(case, system.name, number, jobs / seconds, "jobs/s")

    rounds = bench.plan.pairs if system.is_ours and not listened else bench.plan.context_rounds
    return Run(f"{system.name}, {case}", system, once, rounds)


def bulk(bench: Bench, system: Described) -> Run:
    jobs = bench.plan.jobs_for(system, bench.plan.bulk_jobs)

    def once(number: int) -> None:
        with bench.database(system) as url:
            bench.checkpoint()
            seconds = bench.run(system, "bulk", url, jobs=jobs)["seconds"]
            bench.record(BULK, system.name, number, jobs / seconds, "jobs/s")

    # On SQLite the bare insert is what a target is held against.
    rounds = bench.plan.pairs if system.is_ours else bench.plan.rounds_for(system)
    return Run(f"{system.name}, {BULK}", system, once, rounds)


def keyed(bench: Bench, system: Described) -> Run:
    """Each job with a key of its own. Reported apart: no peer does this in bulk."""
    jobs = bench.plan.bulk_jobs

    def once(number: int) -> None:
        with bench.database(system) as url:
            bench.checkpoint()
            seconds = bench.run(system, "keyed", url, jobs=jobs)["seconds"]
            bench.record(KEYED, system.name, number, jobs / seconds, "jobs/s")

    return Run(f"{system.name}, {KEYED}", system, once, bench.plan.context_rounds)
