"""Requests made from the API's own document: no fault of the server, and no answer that the document does not have."""

import asyncio
import os
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.conftest import add_tasks
from api.test_strangers import routes
from rowlock import Rowlock
from rowlock.api.access import tokens
from rowlock.api.server import serving
from rowlock.core.config import load_settings
from support.each import each
from support.servers.postgres import PostgresDatabases

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
PATHS = sorted({path for _, path in routes()})
ENDLESS = ("/api/events", "/api/jobs/{jobId}/events")


class Background:
    """A server in a thread of its own, and a token of an operator who may do everything or of the owner `ana`."""

    def __init__(self, database: str, owner: str | None, examples: int) -> None:
        limits = {"api.port": 0, "api.requests_per_minute": 10_000_000}
        self.app = Rowlock(settings=load_settings(env={}, flags={"database": database, **limits}))
        self.owner, self.examples = owner, examples
        add_tasks(self.app)
        self.secret, self.url = tokens.new_secret(), ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        await self.app.migrate()
        async with self.app, serving(self.app) as server:
            scope = "operator" if self.owner is None else "jobs"
            await (await self.app.store()).run(tokens.create(self.secret, self.owner, scope))
            await self.app.get_task("add").using(owner=self.owner).enqueue(a=1)
            self.url = "http://{}:{}".format(*server.address)
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "Background":
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


@pytest.fixture(
    scope="module",
    params=["operator on SQLite", "owner on PostgreSQL", pytest.param("for long", marks=pytest.mark.soak)],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresDatabases
) -> Iterator[Background]:
    if request.param != "owner on PostgreSQL":
        examples = 100 if request.param == "for long" else 10
        with Background(f"sqlite:///{tmp_path_factory.mktemp('schema')}/jobs.db", None, examples) as started:
            yield started
        return
    name = f"rowlock_schema_{os.getpid()}_{uuid.uuid4().hex[:12]}"
    with Background(postgres_server.create_database(name), "ana", 5) as started:
        yield started
    postgres_server.drop_database(name)


@pytest.fixture(scope="module")
def document(server: Background) -> Any:
    """What the server says of itself."""
    return schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")


@pytest.mark.timeout(600)
@each("path", [path for path in PATHS if path not in ENDLESS])
def test_every_answer_is_documented_and_none_is_a_fault(server: Background, document: Any, path: str) -> None:
    operations = [found.ok() for found in document.include(path=path).get_all_operations()]
    assert operations

    for operation in operations:

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(max_examples=server.examples, suppress_health_check=list(hypothesis.HealthCheck))
        def ask(case: schemathesis.Case) -> None:
            case.headers = {name: text for name, text in (case.headers or {}).items() if name.lower() != "prefer"}
            case.call_and_validate(headers={"Authorization": f"Bearer {server.secret}"}, checks=CHECKS)

        ask()
