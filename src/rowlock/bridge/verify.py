"""Sends the test vectors of the worker contract to a live worker, and checks its answers.

Needs only Redis and the results folder, not the database. Don't run a bridge on the same streams meanwhile: it would
turn the answers into dead letters.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from rowlock.bridge import messages
from rowlock.bridge.messages import PROGRESS, REQUESTS, RESULTS, BadMessage, Message, ProgressMessage, ResultMessage
from rowlock.bridge.streams import Streams
from rowlock.client.results.folder import ResultFolder
from rowlock.store.engine.ids import new_id

POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.3  # how long to wait for a second answer, which must not differ


@dataclass(frozen=True, slots=True)
class Checked:
    """A test vector, and the worker's mistakes: an empty list if it passed."""

    name: str
    mistakes: list[str]


@dataclass(slots=True)
class Case:
    job_id: str
    path: Path
    fields: dict[str, str]
    before: bytes | None = None  # content of the output file before the request


@dataclass(slots=True)
class Verifier:
    streams: Streams
    folder: ResultFolder
    job_type: str
    input_path: str
    seconds: float  # how long a worker may take for one request
    _played: dict[str, Case] = field(default_factory=dict)

    async def play(self) -> list[Checked]:
        text = resources.files("rowlock.bridge").joinpath("vectors", "requests.json").read_text("utf-8")
        return [Checked(vector["name"], await self._try(vector)) for vector in json.loads(text)]

    async def _try(self, vector: Mapping[str, Any]) -> list[str]:
        """Send the request of a vector; returns the worker's mistakes."""
        case = self._played[vector["name"]] = self._case(vector)
        since = {stream: await self.streams.last_id(stream) for stream in (PROGRESS, RESULTS)}
        if "garbage" in vector:
            await self.streams.add_many(REQUESTS, [vector["garbage"]])
        await self.streams.add_many(REQUESTS, [case.fields])
        answers, mistakes = await self._answers(case, since)
        return mistakes + list(self._judge(case, vector["expect"], answers))

    def _case(self, vector: Mapping[str, Any]) -> Case:
        if "repeat" in vector:
            old = self._played[vector["repeat"]]
            return replace(old, before=old.path.read_bytes() if old.path.exists() else None)
        job_id, wanted = new_id(), vector["request"]
        root = os.path.realpath(self.folder.path)
        path = Path(root, job_id, f"{wanted.get('attempt', 1)}-00c0ffee", "result")
        texts = {"{jobId}": job_id, "{jobType}": self.job_type, "{outputPath}": str(path)}
        texts |= {"{inputPath}": self.input_path, "{missingPath}": str(path) + ".no-such-input"}
        options = {key: texts.get(str(value), value) for key, value in wanted["options"].items()}
        fields = {key: texts.get(value, value) for key, value in wanted.items() if key != "options"}
        case = Case(job_id, path, fields | {"options": json.dumps(options)})
        if "existing" in vector:
            path.parent.mkdir(parents=True)
            path.write_text(vector["existing"])
            case.before = path.read_bytes()
        return case

    async def _answers(self, case: Case, since: Mapping[str, str]) -> tuple[list[Message], list[str]]:
        """The worker's messages about this job, until SETTLE_SECONDS after its result, and mistakes in them."""
        deadline = time.monotonic() + self.seconds
        while True:
            found, mistakes = await self._read(case, since)
            if any(isinstance(one, ResultMessage) for one in found):
                await asyncio.sleep(SETTLE_SECONDS)
                return await self._read(case, since)
            if time.monotonic() >= deadline:
                return found, [*mistakes, f"no result within {self.seconds:g} s"]
            await asyncio.sleep(POLL_SECONDS)

    async def _read(self, case: Case, since: Mapping[str, str]) -> tuple[list[Message], list[str]]:
        found: list[Message] = []
        mistakes: list[str] = []
        for stream, parse in ((PROGRESS, messages.progress), (RESULTS, messages.result)):
            for _, fields in await self.streams.redis.xrange(self.streams.key(stream), min=f"({since[stream]}"):
                try:
                    message = parse(fields)
                except BadMessage as bad:
                    mistakes.append(f"a message on {stream} breaks the contract: {bad}")
                    continue
                if message.job_id == case.job_id:
                    found.append(message)
        return found, mistakes

    def _judge(self, case: Case, expect: Mapping[str, Any], answers: list[Message]) -> Iterator[str]:
        if expect.get("progress") and not any(isinstance(one, ProgressMessage) for one in answers):
            yield "no message on job.progress: the job would not become RUNNING and would have no lease"
        wanted = int(expect.get("attempt", 1))
        if wanted > 1 and any(one.attempt != wanted for one in answers):
            yield f"the request has attempt {wanted}, but an answer does not return it"
        for one in answers:
            if isinstance(one, ResultMessage):
                yield from self._judge_result(case, expect, one)
        content = case.path.read_bytes() if case.path.is_file() else None
        if expect.get("file") == "absent" and content is not None:
            yield "the request failed, but there is a file at outputPath"
        if expect.get("file") == "unchanged" and content != case.before:
            yield "the file at outputPath was changed"

    def _judge_result(self, case: Case, expect: Mapping[str, Any], one: ResultMessage) -> Iterator[str]:
        if one.status != expect.get("status", one.status):
            yield f"status is {one.status}, not {expect['status']} ({one.error_code}: {one.error_message})"
        if one.status == "FAILED" and expect.get("errorCode") and not one.error_code:
            yield "a failure has no errorCode"
        if one.status == "SUCCEEDED":
            inside = "/".join([case.job_id, case.path.parent.name])
            try:
                with self.folder.opened(one.uri or "") as opened, open(os.dup(opened), "rb") as file:
                    found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
                if not "/".join(self.folder.parts(one.uri or "")).startswith(f"{inside}/"):
                    yield f"resultUri {one.uri!r} is not below the folder of outputPath"
                if messages.checksum(one.checksum or "") != found:
                    yield f"checksum is {one.checksum!r}, but the file has {found}"
            except Exception as error:
                yield f"resultUri {one.uri!r} cannot be read below {self.folder.path}: {error!r}"
