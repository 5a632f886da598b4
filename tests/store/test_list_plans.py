"""Pages of an owner's jobs are planned once for each connection: planning looks at each partition."""

from rowlock.api.access import own_jobs
from rowlock.store.engine.postgres.store import PostgresStore
from rowlock.store.engine.store import StoreOptions

PLANS = """
    SELECT coalesce(sum(custom_plans), 0) AS planned_anew, coalesce(sum(generic_plans), 0) AS from_the_cache
    FROM pg_prepared_statements WHERE statement LIKE '%j.owner = $%'"""


async def test_a_list_that_is_asked_for_again_and_again_is_answered_from_a_cached_plan(postgres_url: str) -> None:
    """Also a list with a filter of an owner who has no jobs: to PostgreSQL a plan for that value alone looks cheap."""
    store = await PostgresStore.open(postgres_url, StoreOptions(migrate=True))
    try:
        for number in range(30):
            await store.run(own_jobs.page(f"owner-{number}", None if number % 2 else "task", (), 10))
        async with store._connections["hot"].one() as connection:
            plans = await connection.fetchrow(PLANS)
        assert plans["from_the_cache"] >= 30
        assert plans["planned_anew"] == 0
    finally:
        await store.close()
