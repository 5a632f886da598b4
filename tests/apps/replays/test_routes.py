"""S3.34: the routes of replays and matches that do not concern jobs: create, list, read, delete, each for its owner."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from api.conftest import Api
from apps.engines import ONE_ENGINE
from apps.replays.replays import ask_export, create, replay
from rowlock_apps.replays import service
from support.each import each
from support.web.remote import until


async def test_a_replay_is_created_listed_read_and_deleted(api: Api, ana: str) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    status, made, headers = await api.ask("POST", "/api/replays", ana, replay())
    assert (status, headers["location"]) == (201, f"/api/replays/{made['replayId']}")
    created_at = datetime.fromisoformat(made.pop("createdAt"))
    assert created_at.utcoffset() == timedelta(hours=9), "people see Asia/Seoul"
    assert before < created_at < datetime.now(UTC) + timedelta(seconds=5)
    expected = {"title": "Final, set 1", "matchId": None, "durationMs": 500, "frameCount": 2, "exports": []}
    assert made == {"replayId": made["replayId"], **expected}

    status, page, _ = await api.ask("GET", "/api/replays", ana)
    assert status == 200
    assert [item["replayId"] for item in page["items"]] == [made["replayId"]]
    assert "frames" not in page["items"][0]
    status, whole, _ = await api.ask("GET", headers["location"], ana)
    assert status == 200
    assert (whole["frames"], whole["players"]) == (replay()["frames"], replay()["players"])

    assert (await api.ask("DELETE", headers["location"], ana))[0] == 204
    status, body, _ = await api.ask("GET", headers["location"], ana)
    assert (status, body["code"]) == (404, "REPLAY_NOT_FOUND")
    assert (await api.ask("GET", "/api/replays", ana))[1]["items"] == []


async def test_replays_come_in_pages_newest_first_and_by_match(api: Api, ana: str) -> None:
    match = (await api.ask("POST", "/api/matches", ana, {"title": "Final"}))[1]["matchId"]
    ids = [await create(api, ana, title=f"set {n}", matchId=match if n == 1 else None) for n in range(3)]
    status, first, _ = await api.ask("GET", "/api/replays?size=2", ana)
    assert status == 200
    second = (await api.ask("GET", "/api/replays?size=2&page=1", ana))[1]
    found = [item["replayId"] for page in (first, second) for item in page["items"]]
    assert sorted(found) == sorted(ids)
    times = [item["createdAt"] for page in (first, second) for item in page["items"]]
    assert times == sorted(times, reverse=True)
    assert (first["hasMore"], second["hasMore"]) == (True, False)
    of_match = (await api.ask("GET", f"/api/replays?matchId={match}", ana))[1]
    assert [item["replayId"] for item in of_match["items"]] == [ids[1]]


async def test_a_match_is_created_listed_read_and_deleted(api: Api, ana: str) -> None:
    status, made, headers = await api.ask(
        "POST", "/api/matches", ana, {"title": "Final", "playedAt": "2026-03-01T10:00:00Z"}
    )
    assert (status, made["title"], made["replayCount"]) == (201, "Final", 0)
    assert made["playedAt"] == "2026-03-01T19:00:00+09:00"
    assert (await api.ask("GET", headers["location"], ana))[1] == made
    assert (await api.ask("GET", "/api/matches", ana))[1]["items"] == [made]

    replay_id = await create(api, ana, matchId=made["matchId"])
    assert (await api.ask("GET", headers["location"], ana))[1]["replayCount"] == 1
    status, body, _ = await api.ask("DELETE", headers["location"], ana)
    assert (status, body["code"]) == (409, "MATCH_IN_USE")
    assert (await api.ask("DELETE", f"/api/replays/{replay_id}", ana))[0] == 204
    assert (await api.ask("DELETE", headers["location"], ana))[0] == 204
    assert (await api.ask("GET", headers["location"], ana))[1]["code"] == "MATCH_NOT_FOUND"


async def test_what_belongs_to_another_user_is_answered_like_what_is_missing(api: Api, ana: str, bob: str) -> None:
    """S3.4, S3.5: no route tells whether a replay of somebody else exists."""
    mine = await create(api, ana)
    match = (await api.ask("POST", "/api/matches", ana, {"title": "Final"}))[1]["matchId"]
    missing = "11111111-1111-4111-8111-111111111111"
    for method, path in (
        ("GET", "/api/replays/{}"),
        ("DELETE", "/api/replays/{}"),
        ("POST", "/api/replays/{}/exports/mp4"),
        ("POST", "/api/replays/{}/exports/thumbnail"),
    ):
        answers = [await api.ask(method, path.format(one), bob) for one in (mine, missing, "17", "a%00b", "%ED%A0%80")]
        assert [status for status, _, _ in answers] == [404] * 5, path
        assert all(body == answers[0][1] for _, body, _ in answers), path
    for method in ("GET", "DELETE"):
        answers = [await api.ask(method, f"/api/matches/{one}", bob) for one in (match, missing, "17", "a%00b")]
        assert [(status, body["code"]) for status, body, _ in answers] == [(404, "MATCH_NOT_FOUND")] * 4
    status, body, _ = await api.ask("POST", "/api/replays", bob, replay(matchId=match))
    assert (status, body["code"]) == (404, "MATCH_NOT_FOUND")
    assert (await api.ask("GET", "/api/replays", bob))[1]["items"] == []
    assert (await api.ask("GET", f"/api/replays?matchId={match}", bob))[1]["items"] == []
    assert (await api.ask("GET", "/api/jobs", bob))[1]["items"] == []
    assert (await api.ask("GET", f"/api/replays/{mine}", ana))[0] == 200


@ONE_ENGINE
async def test_without_the_token_of_a_user_there_is_nothing(api: Api, ana: str) -> None:
    replay_id = await create(api, ana)
    operator = await api.token(None, "operator")
    created = await api.ask("POST", f"/api/replays/{replay_id}/exports/mp4", ana)
    assert created[0] == 202
    for path in ("/api/replays", f"/api/replays/{replay_id}", "/api/matches"):
        assert (await api.ask("GET", path))[0] == 401
        status, body, _ = await api.ask("GET", path, operator)
        assert (status, body["code"]) == (403, "FORBIDDEN")
    assert (await api.ask("POST", f"/api/replays/{replay_id}/exports/mp4"))[0] == 401
    assert (await api.ask("POST", f"/api/replays/{replay_id}/exports/mp4", operator))[0] == 403


@ONE_ENGINE
async def test_an_export_job_is_created_by_the_replay_routes_alone(api: Api, ana: str) -> None:
    """The tasks are not public: POST /api/jobs would let a user export any file that the worker can read."""
    for task in ("REPLAY_MP4", "REPLAY_THUMBNAIL"):
        args = {"replayId": "1", "inputPath": "/etc/passwd", "durationMs": 1}
        status, body, _ = await api.ask("POST", "/api/jobs", ana, {"jobType": task, "args": args})
        assert (status, body["code"]) == (404, "TASK_NOT_FOUND")


async def test_a_second_request_for_an_export_that_is_not_finished_is_answered_with_the_first_job(
    api: Api, ana: str
) -> None:
    """S3.11: a double click makes one job."""
    replay_id, other = await create(api, ana), await create(api, ana)
    first = await ask_export(api, ana, replay_id)
    both = await asyncio.gather(*(ask_export(api, ana, replay_id) for _ in range(5)))
    assert both == [first] * 5
    assert await ask_export(api, ana, replay_id, "thumbnail") != first
    assert await ask_export(api, ana, other) != first
    await api.ask("POST", f"/api/jobs/{first}/cancel", ana)
    second = await ask_export(api, ana, replay_id)
    assert second != first
    assert len((await api.ask("GET", "/api/jobs", ana))[1]["items"]) == 4


async def test_a_replay_is_not_deleted_while_it_is_exported(api: Api, ana: str) -> None:
    replay_id = await create(api, ana)
    job_id = await ask_export(api, ana, replay_id)
    status, body, _ = await api.ask("DELETE", f"/api/replays/{replay_id}", ana)
    assert (status, body["code"]) == (409, "REPLAY_IN_USE")
    assert (await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana))[0] in (200, 202)
    assert (await api.ask("DELETE", f"/api/replays/{replay_id}", ana))[0] == 204
    assert (await api.ask("GET", f"/api/jobs/{job_id}", ana))[1]["status"] == "CANCELLED"
    assert list((api.app.results.path / ".inputs").iterdir()) == [], "the replay's file goes with the replay"


@ONE_ENGINE
async def test_a_replay_whose_file_cannot_be_removed_stays(api: Api, ana: str) -> None:
    """The other way round, a process that dies between the two would leave a file that belongs to nothing."""
    replay_id = await create(api, ana)
    in_the_way = api.app.results.path / ".inputs" / f"{replay_id}.json" / "a folder"
    in_the_way.mkdir(parents=True)
    assert (await api.ask("DELETE", f"/api/replays/{replay_id}", ana))[0] == 500
    assert (await api.ask("GET", f"/api/replays/{replay_id}", ana))[0] == 200
    in_the_way.rmdir()
    in_the_way.parent.rmdir()
    assert (await api.ask("DELETE", f"/api/replays/{replay_id}", ana))[0] == 204


@each("spelt", [str.upper, lambda text: f"{{{text.replace('-', '')}}}"], ids=["capitals", "braces"])
async def test_an_id_in_another_spelling_means_the_same_replay_and_match(
    api: Api, ana: str, spelt: Callable[[str], str]
) -> None:
    match = (await api.ask("POST", "/api/matches", ana, {"title": "Final"}))[1]["matchId"]
    status, made, _ = await api.ask("POST", "/api/replays", ana, replay(matchId=spelt(match)))
    assert (status, made["matchId"]) == (201, match)
    path = f"/api/replays/{spelt(made['replayId'])}"
    assert (await api.ask("GET", path, ana))[1]["replayId"] == made["replayId"]
    job_id = await ask_export(api, ana, made["replayId"])
    assert await ask_export(api, ana, spelt(made["replayId"])) == job_id
    assert (await api.ask("DELETE", path, ana))[0] == 409, "an export of it is not finished"
    await api.ask("POST", f"/api/jobs/{job_id}/cancel", ana)
    assert (await api.ask("DELETE", path, ana))[0] == 204
    assert (await api.ask("GET", f"/api/replays/{made['replayId']}", ana))[0] == 404
    assert list((api.app.results.path / ".inputs").iterdir()) == []
    assert (await api.ask("DELETE", f"/api/matches/{spelt(match)}", ana))[0] == 204


async def test_a_user_has_a_limited_number_of_replays_and_matches(
    api: Api, ana: str, bob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST_REPLAYS", "MOST_MATCHES"):
        monkeypatch.setattr(service, name, 2)
    for path, body in (("/api/replays", replay()), ("/api/matches", {"title": "Final"})):
        answers = await asyncio.gather(*(api.ask("POST", path, ana, body) for _ in range(5)))
        assert sorted(status for status, _, _ in answers) == [201, 201, 409, 409, 409]
        refused = next(body for status, body, _ in answers if status == 409)
        assert refused["code"] == path.replace("/api/", "TOO_MANY_").upper()
        assert (await api.ask("POST", path, bob, body))[0] == 201
    (first, _) = (await api.ask("GET", "/api/replays", ana))[1]["items"]
    assert (await api.ask("DELETE", f"/api/replays/{first['replayId']}", ana))[0] == 204
    assert (await api.ask("POST", "/api/replays", ana, replay()))[0] == 201


@ONE_ENGINE
async def test_the_document_of_the_api_has_every_problem_of_these_routes(api: Api, ana: str) -> None:
    paths = (await api.ask("GET", "/api/openapi.json"))[1]["paths"]
    replay_id, empty = await create(api, ana), await create(api, ana, frames=[])
    match = (await api.ask("POST", "/api/matches", ana, {"title": "Final"}))[1]["matchId"]
    await create(api, ana, matchId=match)
    await ask_export(api, ana, replay_id)
    missing, operator = "11111111-1111-4111-8111-111111111111", await api.token(None, "operator")
    for token, method, path, id_, body in (
        ("", "GET", "/api/replays", "", None),
        (operator, "GET", "/api/matches", "", None),
        (ana, "POST", "/api/replays", "", {"title": 1}),
        (ana, "POST", "/api/replays", "", replay(matchId=missing)),
        (ana, "POST", "/api/replays", "", b"{"),
        (ana, "GET", "/api/replays/{replayId}", missing, None),
        (ana, "DELETE", "/api/replays/{replayId}", missing, None),
        (ana, "DELETE", "/api/replays/{replayId}", replay_id, None),
        (ana, "POST", "/api/replays/{replayId}/exports/mp4", missing, None),
        (ana, "POST", "/api/replays/{replayId}/exports/thumbnail", empty, None),
        (ana, "GET", "/api/matches/{matchId}", missing, None),
        (ana, "DELETE", "/api/matches/{matchId}", match, None),
    ):
        status, answer, headers = await api.ask(method, re.sub("{.*?}", id_, path), token or None, body)
        assert headers["content-type"] == "application/problem+json"
        described = paths[path][method.lower()]["responses"][str(status)]["content"]["application/problem+json"]
        assert answer["code"] in described["examples"], (method, path)


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
@pytest.mark.parametrize("first", ["export", "delete"])
async def test_of_an_export_and_a_delete_at_the_same_moment_the_second_sees_the_first(
    api: Api, ana: str, url: str, first: str
) -> None:
    """Neither is a job left without its replay, nor a file; nor is a replay deleted under its job."""
    replay_id = await create(api, ana)
    export, delete = ("POST", f"/api/replays/{replay_id}/exports/mp4"), ("DELETE", f"/api/replays/{replay_id}")
    other = psycopg.connect(url)
    other.execute("UPDATE replays_replays SET title = title")  # what both do first
    with other, psycopg.connect(url, autocommit=True) as watcher:
        asked = []
        for number, request in enumerate((export, delete) if first == "export" else (delete, export), 1):
            asked.append(asyncio.create_task(api.ask(*request, ana)))
            await _waiting_for_a_lock(watcher, number)
        other.commit()
        answers = {(await one)[0] for one in asked}
    jobs = (await api.ask("GET", "/api/jobs", ana))[1]["items"]
    left = (await api.ask("GET", f"/api/replays/{replay_id}", ana))[0]
    files = len(list((api.app.results.path / ".inputs").glob("*")))
    assert (answers, len(jobs), left, files) in [({202, 409}, 1, 200, 1), ({404, 204}, 0, 404, 0)]


async def _waiting_for_a_lock(watcher: psycopg.Connection[Any], number: int) -> None:
    def waiting() -> bool:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        row = watcher.execute(sql).fetchone()
        return row is not None and row[0] >= number

    await until(waiting)


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"title": ""}, "title"),
    ({"title": "a\x00b"}, "title"),
    ({"title": "\ud800"}, "title"),
    ({"durationMs": -1}, "durationMs"),
    ({"durationMs": 2**60}, "durationMs"),
    ({"durationMs": 1.5}, "durationMs"),
    ({"frames": [{"t": 0, "positions": [[0.5, 0.5]]}]}, "body"),
    ({"frames": [{"t": 5, "positions": [[0, 0], [0, 0]]}] * 2}, "body"),
    ({"frames": [{"t": 0, "positions": [[0, 2], [0, 0]]}]}, "frames.0.positions.0.1"),
    ({"players": [{"name": "red", "color": "red"}]}, "players.0.color"),
    ({"owner": "bob"}, "owner"),
    ({"matchId": 7}, "matchId"),
]


@ONE_ENGINE
async def test_a_replay_that_makes_no_sense_is_refused_with_the_field(api: Api, ana: str) -> None:
    for changes, field in NONSENSE:
        status, body, _ = await api.ask("POST", "/api/replays", ana, replay(**changes))
        assert (status, body["code"]) == (422, "INVALID_REQUEST"), (changes, body)
        assert field in [error["field"] for error in body["errors"]], (changes, body)
    assert (await api.ask("GET", "/api/replays", ana))[1]["items"] == []


@ONE_ENGINE
async def test_a_replay_without_frames_or_with_a_strange_duration_is_kept_but_not_exported(api: Api, ana: str) -> None:
    for changes, code in (
        ({"frames": []}, "NO_FRAMES"),
        ({"durationMs": 0}, "INVALID_DURATION"),
        ({"durationMs": 24 * 3600 * 1000}, "INVALID_DURATION"),
    ):
        status, made, _ = await api.ask("POST", "/api/replays", ana, replay(**changes))
        assert status == 201
        for kind in ("mp4", "thumbnail"):
            status, body, _ = await api.ask("POST", f"/api/replays/{made['replayId']}/exports/{kind}", ana)
            assert (status, body["code"]) == (422, code)
            assert body["detail"]
    assert (await api.ask("GET", "/api/jobs", ana))[1]["items"] == []
