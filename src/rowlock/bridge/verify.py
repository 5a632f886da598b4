"""Sends the test vectors of the worker contract to a live worker, and checks its answers.

It uses only Redis and the results folder, no database; to the worker it looks like a bridge. No bridge may read the
streams meanwhile, because it would take the answers for dead letters.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from rowlock.bridge import messages
from rowlock.bridge.messages import PROGRESS, REQUESTS, RESULTS, BadMessage, Progress, Result
from rowlock.bridge.streams import Streams
from rowlock.client.results.folder import ResultFolder
from rowlock.store.engine.ids import new_id

POLL_SECONDS = 0.05
SETTLE_SECONDS = 0.3  # wait this long for a second answer, which must not differ


@dataclass(frozen=True, slots=True)
class Checked:
    """A test vector, and the mistakes of the worker; an empty list if it passed."""

    name: str
    mistakes: list[str]


@dataclass(slots=True)
class Case:
    """A request that was sent."""

    job_id: str
    path: Path
    fields: dict[str, str]
    before: bytes | None = None  # content of the output file before the request


@dataclass(slots=True)
class Verifier:
    """Sends requests and checks the answers."""

    streams: Streams
    folder: ResultFolder
    job_type: str
    input_path: str
    seconds: float  # how long a worker may take for one request
    _played: dict[str, Case] = field(default_factory=dict)

    async def play(self) -> list[Checked]:
        """Every vector, in order."""
        text = resources.files("rowlock.bridge").joinpath("vectors", "requests.json").read_text("utf-8")
        return [await self._one(vector) for vector in json.loads(text)]

    async def _one(self, vector: Mapping[str, Any]) -> Checked:
        name, expect = vector["name"], vector["expect"]
        case = self._again(vector["repeat"]) if "repeat" in vector else self._new(vector)
        self._played[name] = case
        since = {stream: await self.streams.last_id(stream) for stream in (PROGRESS, RESULTS)}
        if "garbage" in vector:
            await self.streams.add_many(REQUESTS, [vector["garbage"]])
        await self.streams.add_many(REQUESTS, [case.fields])
        answers, mistakes = await self._answers(case, since)
        return Checked(name, mistakes + list(self._judge(case, expect, answers)))

    def _new(self, vector: Mapping[str, Any]) -> Case:
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

    def _again(self, name: str) -> Case:
        old = self._played[name]
        return Case(old.job_id, old.path, old.fields, old.path.read_bytes() if old.path.exists() else None)

    async def _answers(self, case: Case, since: Mapping[str, str]) -> tuple[list[Progress | Result], list[str]]:
        """The worker's messages about this job, until SETTLE_SECONDS after its result."""
        deadline = time.monotonic() + self.seconds
        found, mistakes = await self._read(case, since)
        while not any(isinstance(one, Result) for one in found) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_SECONDS)
            found, mistakes = await self._read(case, since)
        if not any(isinstance(one, Result) for one in found):
            return found, [*mistakes, f"no result within {self.seconds:g} s"]
        await asyncio.sleep(SETTLE_SECONDS)
        return await self._read(case, since)

    async def _read(self, case: Case, since: Mapping[str, str]) -> tuple[list[Progress | Result], list[str]]:
        found: list[Progress | Result] = []
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

    def _judge(self, case: Case, expect: Mapping[str, Any], answers: list[Progress | Result]) -> list[str]:
        mistakes = []
        results = [one for one in answers if isinstance(one, Result)]
        if expect.get("progress") and not any(isinstance(one, Progress) for one in answers):
            mistakes.append("no message on job.progress: the job would not become RUNNING and would have no lease")
        wanted = int(expect.get("attempt", 1))
        if wanted > 1 and any(one.attempt != wanted for one in answers):
            mistakes.append(f"the request says attempt {wanted}, but an answer does not send it back")
        for one in results:
            mistakes += self._judge_result(case, expect, one)
        content = case.path.read_bytes() if case.path.is_file() else None
        if expect.get("file") == "absent" and content is not None:
            mistakes.append("a failed request has left a file at outputPath")
        if expect.get("file") == "unchanged" and content != case.before:
            mistakes.append("the file at outputPath was changed")
        return mistakes

    def _judge_result(self, case: Case, expect: Mapping[str, Any], one: Result) -> list[str]:
        mistakes = []
        if one.status != expect.get("status", one.status):
            mistakes.append(f"status is {one.status}, not {expect['status']} ({one.error_code}: {one.error_message})")
        if one.status == "FAILED" and expect.get("errorCode") and not one.error_code:
            mistakes.append("a failure has no errorCode")
        if one.status == "SUCCEEDED":
            inside = "/".join([case.job_id, case.path.parent.name])
            try:
                with self.folder.opened(one.uri or "") as opened, open(os.dup(opened), "rb") as file:
                    found = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
                if not "/".join(self.folder.parts(one.uri or "")).startswith(f"{inside}/"):
                    mistakes.append(f"resultUri {one.uri!r} is not below the folder of outputPath")
                if messages.checksum(one.checksum or "") != found:
                    mistakes.append(f"checksum is {one.checksum!r}, but the file has {found}")
            except Exception as error:
                mistakes.append(f"resultUri {one.uri!r} cannot be read below {self.folder.path}: {error!r}")
        return mistakes
