"""The test vectors of the worker contract: they say what the bridge does, and try out workers."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from rowlock.bridge import messages
from rowlock.cli.main import execute
from support.each import each
from support.servers.node import example, node
from support.servers.redis import RedisServer

VECTORS = resources.files("rowlock.bridge").joinpath("vectors")
# Writes over what is there, reports a wrong checksum and leaves out the attempt.
CARELESS = """
import json, os, sys, redis
url, prefix = sys.argv[1:]
client = redis.Redis.from_url(url, decode_responses=True)
client.xgroup_create(prefix + "job.requests", "workers", id="0", mkstream=True)
print("ready", flush=True)
while True:
    for _, entries in client.xreadgroup("workers", "w", {prefix + "job.requests": ">"}, block=1000) or ():
        for entry, fields in entries:
            if "options" in fields:
                path = json.loads(fields["options"])["outputPath"]
                os.makedirs(os.path.dirname(path), exist_ok=True)
                open(path, "a").write("x")
                said = {"jobId": fields["jobId"], "status": "SUCCEEDED", "resultUri": path, "checksum": "0" * 64}
                client.xadd(prefix + "job.results", said)
"""


@each("vector", json.loads(VECTORS.joinpath("messages.json").read_text()), ids=json.dumps)
def test_each_message_is_read_or_refused_as_its_vector_says(vector: dict[str, Any]) -> None:
    parse = {"job.progress": messages.progress, "job.results": messages.result}[vector["stream"]]
    fields = {name.encode(): value.encode() for name, value in vector["fields"].items()}
    reason = None
    try:
        parse(fields)
    except messages.BadMessage as bad:
        reason = bad.reason
    assert reason == vector["reason"]


def play(worker: list[str], server: RedisServer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of `rowlock bridge verify` against a worker."""
    (folder / "input.rep").write_bytes(b"a replay")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROWLOCK_REDIS__URL", server.url)
    monkeypatch.setenv("ROWLOCK_RESULTS__PATH", str(folder / "results"))
    process = subprocess.Popen(worker, stdout=subprocess.PIPE, text=True, env=os.environ | {"REDIS_URL": server.url})
    try:
        assert process.stdout is not None
        process.stdout.readline()
        prefix = ["--prefix", f"{folder.name}:", "--timeout", "60"]
        return execute(["bridge", "verify", "--input", "input.rep", "--json", *prefix])
    finally:
        process.kill()
        process.wait(10)


def test_the_worker_in_node_keeps_the_contract(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_PREFIX", f"{tmp_path.name}:")
    worker = [node(), str(example("node-worker", tmp_path) / "redis_worker.mjs")]
    code = play(worker, redis_server, tmp_path, monkeypatch)
    said = capsys.readouterr().out
    assert code == 0, said
    assert len(json.loads(said)) == 6


def test_a_careless_worker_is_told_what_it_does_wrong(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = [sys.executable, "-c", CARELESS, redis_server.url, f"{tmp_path.name}:"]
    code = play(worker, redis_server, tmp_path, monkeypatch)
    found = {one["name"]: " ".join(one["mistakes"]) for one in json.loads(capsys.readouterr().out)}
    assert code == 1
    assert "no message on job.progress" in found["a request is done"]
    assert "checksum is" in found["a request is done"]
    assert "was changed" in found["the same request again does not change the output"]
    assert "was changed" in found["an output that exists is not overwritten"]
    assert "not FAILED" in found["an input that is missing is a failure with a code"]
    assert "attempt 2" in found["the attempt is sent back"]
