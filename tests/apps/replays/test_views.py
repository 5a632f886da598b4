"""The document's table `jobs`, as a view to read: its columns and its words, on each engine."""

from typing import Any

import psycopg
import pytest

from api.conftest import Api
from apps.engines import ONE_ENGINE
from apps.replays.replays import ask_export, create, ended
from rowlock_apps.replays.app import Replays
from support.web.remote import Remote, until_state

COLUMNS = (
    *("job_id", "job_type", "owner_user_id", "target_replay_id", "status", "progress"),
    *("created_at", "started_at", "ended_at", "error_code", "error_message", "result_uri", "result_checksum"),
)


async def rows(app: Replays) -> dict[str, dict[str, Any]]:
    """The view, by job."""
    found = await app.fetch(f"SELECT {', '.join(COLUMNS)} FROM replays_jobs")
    return {str(row[0]): dict(zip(COLUMNS, row, strict=True)) for row in found}


async def test_the_view_has_the_columns_and_words_of_the_document(far_api: Api, remote: Remote) -> None:
    """S3.17, S3.18, S3.19: QUEUED until a worker has answered, RUNNING, SUCCEEDED, FAILED, CANCELLED."""
    token = await far_api.token("ana")
    replays = [await create(far_api, token) for _ in range(5)]
    queued, running, succeeded, failed, cancelled = [
        await ask_export(far_api, token, replay_id, kind)
        for replay_id, kind in zip(replays, ("mp4", "thumbnail", "mp4", "mp4", "mp4"), strict=True)
    ]
    for job_id in (queued, running, succeeded, failed, cancelled):
        await remote.request(job_id)
    remote.progress(running, 40)
    remote.succeed(await remote.request(succeeded))
    remote.say("job.results", jobId=failed, status="FAILED", errorCode="CODEC", errorMessage="no such codec")
    await far_api.ask("POST", f"/api/jobs/{cancelled}/cancel", token)
    await ended(far_api, token, succeeded)
    await ended(far_api, token, failed)
    await ended(far_api, token, cancelled)
    await until_state(far_api.app, running, "running")

    found = await rows(far_api.app)  # type: ignore[arg-type]
    words = {job_id: row["status"] for job_id, row in found.items()}
    assert words == {
        queued: "QUEUED",
        running: "RUNNING",
        succeeded: "SUCCEEDED",
        failed: "FAILED",
        cancelled: "CANCELLED",
    }
    assert {row["owner_user_id"] for row in found.values()} == {"ana"}
    assert [found[job_id]["target_replay_id"] for job_id in (queued, running, succeeded)] == replays[:3]
    assert [found[job_id]["job_type"] for job_id in (queued, running)] == ["REPLAY_MP4", "REPLAY_THUMBNAIL"]
    assert (found[queued]["progress"], found[queued]["started_at"], found[queued]["ended_at"]) == (0, None, None)
    assert found[running]["progress"] == 40
    assert found[running]["started_at"] is not None
    assert found[succeeded]["ended_at"] is not None
    assert found[succeeded]["result_uri"].endswith("replay.mp4")
    assert found[succeeded]["result_checksum"].startswith("sha256:")
    assert (found[failed]["error_code"], found[failed]["error_message"]) == ("CODEC", "no such codec")
    stored = str(found[succeeded]["created_at"])
    assert stored.endswith(("Z", "+00:00")), f"stored times are in UTC: {stored}"


async def test_every_row_of_the_view_refers_to_a_user_and_a_replay_that_exist(api: Api, ana: str) -> None:
    """S3.17: the document's foreign keys hold. A replay that is deleted takes its finished exports out of the view."""
    replay_id = await create(api, ana)
    job_id = await ask_export(api, ana, replay_id)
    assert list(await rows(api.app)) == [job_id]  # type: ignore[arg-type]
    await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana)
    assert (await api.ask("DELETE", f"/api/replays/{replay_id}", ana))[0] == 204
    assert await rows(api.app) == {}  # type: ignore[arg-type]
    assert (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] == "CANCELLED"
    for table in ("replays_replays", "replays_exports"):
        with pytest.raises(Exception, match=r"(?i)foreign key"):
            async with api.app.transaction() as tx:
                await tx.execute(
                    "INSERT INTO replays_replays (id, owner_user_id, title, duration_ms, frame_count, data)"
                    " VALUES ('1', 'nobody', 'x', 1, 1, '')"
                    if table == "replays_replays"
                    else "INSERT INTO replays_exports (job_id, replay_id, owner_user_id, job_type)"
                    f" VALUES ('{job_id}', '{replay_id}', 'ana', 'REPLAY_MP4')"
                )


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_the_view_has_the_documents_name_and_refuses_every_write(api: Api, ana: str, url: str) -> None:
    job_id = await ask_export(api, ana, await create(api, ana))
    with psycopg.connect(url, autocommit=True) as reader:
        reader.execute("SET search_path = replays")
        assert reader.execute("SELECT job_id::text, status FROM jobs").fetchall() == [(job_id, "QUEUED")]
        for sql in (
            "INSERT INTO jobs (job_type) VALUES ('REPLAY_MP4')",
            "UPDATE jobs SET status = 'SUCCEEDED'",
            "DELETE FROM jobs WHERE status = 'no such'",
        ):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="only shows the jobs"):
                reader.execute(sql)


@ONE_ENGINE
async def test_on_sqlite_the_view_cannot_be_written_to(api: Api) -> None:
    with pytest.raises(Exception, match="cannot modify replays_jobs because it is a view"):
        async with api.app.transaction() as tx:
            await tx.execute("DELETE FROM replays_jobs")


async def test_sqlite_makes_its_tables_by_itself_and_postgresql_by_an_explicit_migration(
    engine: str, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    """S3.35"""
    if engine == "sqlite":
        async with Replays(f"sqlite:///{tmp_path}/new.db") as app:
            assert await rows(app) == {}
        return
    app = Replays(request.getfixturevalue("postgres_url"))
    with pytest.raises(Exception, match="rowlock migrate"):
        await app.open()
    assert "replays/0001_replays" in await app.migrate()
    assert await app.migrate() == []
    async with app:
        assert await rows(app) == {}
