"""Real processes: two workers on PostgreSQL, and the README's commands on SQLite."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apps.replays.media import fake_ffmpeg, is_mp4
from cli.command import Cli
from rowlock_apps.replays import encoder, samples, service
from rowlock_apps.replays.app import Replays
from rowlock_apps.replays.export import MP4

README = (Path(service.__file__).parent / "README.md").read_text()
APP = "rowlock_apps.replays:app"


@pytest.fixture
def cli(url: str, tmp_path: Path) -> Iterator[Cli]:
    """`rowlock …` on the test's database."""
    cli = Cli(tmp_path, url)
    yield cli
    cli.close()


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_on_postgresql_two_workers_share_the_exports_and_each_is_done_once(
    app: Replays, cli: Cli, tmp_path: Path
) -> None:
    """Only the URL differs. Each worker encodes two at a time: three encoders can only meet if both are at work."""
    met = tmp_path / "met"
    met.mkdir()
    waiting = f"touch {met}/$$; while [ $(ls {met} | wc -l) -lt 3 ]; do sleep 0.05; done"
    fake_ffmpeg(tmp_path, f'{waiting}; exec {encoder.program()} "$@"')
    replays = [await service.create_replay(app, "ana", "Final", None, samples.sample(200)) for _ in range(6)]
    jobs = [await service.create_export(app, "ana", replay.id, MP4) for replay in replays]
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    workers = [cli.start("worker", "--app", APP, PATH=path) for _ in range(2)]
    ended = [await app.job(job_id) for job_id in jobs]
    for job in ended:
        await job.wait(timeout=60)
        await job.refresh()
    assert [(job.state, job.attempt) for job in ended] == [("succeeded", 1)] * 6
    assert len({job.locked_by for job in ended}) == 2
    assert await asyncio.to_thread(lambda: len(list(met.iterdir()))) == 6, "each was encoded once"
    assert [worker.stop() for worker in workers] == [0, 0]


def block(language: str, having: str) -> str:
    """The one block of the README that has these words."""
    (found,) = (text for text in re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S) if having in text)
    return str(found)


def test_the_readme_takes_a_newcomer_to_a_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they are printed, on a port that is free."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rowlock").write_text(f'#!/bin/sh\nexec {sys.executable} -m rowlock "$@"\n')
    (tmp_path / "bin/rowlock").chmod(0o755)
    monkeypatch.delenv("JOBS_EXPORT_PATH")
    monkeypatch.delenv("ROWLOCK_API__PORT")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert shutil.which("curl"), "the README's commands need curl"
    cli = Cli(tmp_path, None)
    try:
        (command, *_) = re.findall(r"rowlock (up .*?)\s+#", block("sh", "pip install"))
        up = cli.start(*command.split(), "--port", "0")
        up.wait_for("API at")
        (port,) = re.findall(r"API at http://127\.0\.0\.1:(\d+)", up.log)
        script = "set -e\n" + block("bash", "curl").replace("8321", port)
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=cli.env, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr + up.log
        assert "job.completed" in done.stdout, done.stdout + done.stderr + up.log
        assert is_mp4((tmp_path / "replay.mp4").read_bytes(), seconds=2)
        assert up.stop() == 0
    finally:
        cli.close()
