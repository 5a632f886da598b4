"""The numbers of the document, and what becomes of a config, a rule or a cron job that is wrong."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml

from apps.engines import ONE_ENGINE
from rowlock import ConfigError, InvalidArguments, Rowlock, ScheduleNotFound
from rowlock_apps.cronjobs import cron_jobs
from rowlock_apps.cronjobs.app import CONFIG, make_app, mistakes_in_config
from rowlock_apps.cronjobs.executions import get_executions
from rowlock_apps.cronjobs.main import WorkerPool
from support.each import each
from support.tasks.contract import until

DOCUMENT = {"pool_size": 5, "poll_interval_seconds": 5, "claim_batch_size": 10, "shutdown_timeout_seconds": 30}


def test_the_config_is_the_documents_and_the_pool_works_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """S2.11, S2.12, S2.13, S2.14, S2.15: config/worker.yaml has the four numbers, and they are in force."""
    monkeypatch.delenv("ROWLOCK_DATABASE_URL", raising=False)
    assert yaml.safe_load(CONFIG.read_text())["worker"] == DOCUMENT
    app = make_app()
    assert app.settings.database == "sqlite:///cronjobs.db"
    assert mistakes_in_config(app) == []
    for pool in (WorkerPool(app=app), WorkerPool(DOCUMENT, app=app)):
        assert (pool.pool_size, pool.poll_interval) == (5, 5)
        assert (pool.claim_batch_size, pool.shutdown_timeout) == (10, 30)


@ONE_ENGINE
async def test_the_cron_jobs_of_the_yaml_are_declared_with_their_words(url: str) -> None:
    """S2.3: handler_name, handler_params, max_retry and timeout_seconds of the YAML; and they can be declared."""
    async with make_app(url) as app, app.dispatcher():
        found = {job.id: job for job in await cron_jobs.get_cron_jobs(app=app)}
    report = found["hourly-report"]
    assert (report.handler_name, report.handler_params, report.origin) == ("report", {"hours": 1}, "config")
    assert (report.max_retry, report.timeout_seconds, report.cron_expression) == (3, 60, "0 * * * *")
    assert found["nightly-cleanup"].timezone == "Asia/Seoul"


@each(
    "text, words",
    [
        ("worker: {pool_size: many}", r"worker.pool_size = 'many' \({file}:1\): must be a valid integer"),
        (
            "worker:\n  pool_sise: 5",
            r"worker.pool_sise = 5 \({file}:2\): no such setting; did you mean",
        ),
        ("worker: {pool_size: 0}", r"worker.pool_size = 0 \({file}:1\): must be greater than or equal to 1"),
        ("worker: [", r"{file}, line 1, column 10: not valid YAML: "),
        ("schedules: {nightly: 3}", r"schedules = {{…}} \({file}:1\): schedule 'nightly' must have a task and a rule"),
    ],
    ids=["value", "key", "range", "syntax", "schedule"],
)
def test_a_wrong_config_names_key_value_and_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "worker.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words.replace("{file}", str(file)).replace("{{", "{").replace("}}", "}")):
        _ = make_app(config=file).settings


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"handler_name": "smaple"}, "no task named 'smaple'; did you mean 'sample'"),
    ({"handler_params": {"sleep": 1}}, "handler 'sample': params do not fit: sleep = 1: no such parameter"),
    ({"cron": "0 0 31 2 *"}, "never"),
    ({"cron": "61 * * * *"}, "61"),
    ({"cron": "* * *"}, "'many'"),
    ({"cron": "0 3 * * *", "every": "1s"}, "needs one of cron, every and at; given: cron, every"),
    ({"max_retry": -1}, "max_retry must be a whole number from 0, not -1"),
    ({"timeout_seconds": "soon"}, "timeout must be seconds or a time such as 30s"),
    ({"zone": "Moon/Base"}, "Moon/Base"),
]


@each("given, words", WRONG, ids=lambda value: str(value) if isinstance(value, dict) else "")
async def test_a_wrong_cron_job_is_refused_and_the_one_that_was_there_stays(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    wanted = {"handler_name": "sample", "cron": "* * * * *"} | given
    async with make_app(f"sqlite:///{tmp_path}/cronjobs.db") as app:
        await cron_jobs.add("many", "sample", cron="0 4 * * *", app=app)
        with pytest.raises(InvalidArguments, match=words) as raised:
            await cron_jobs.add("many", **wanted, app=app)
        assert "'many'" in str(raised.value), "the mistake says of which cron job it is"
        assert (await cron_jobs.get("many", app=app)).cron_expression == "0 4 * * *"
        with pytest.raises(ScheduleNotFound, match="no schedule named 'none'"):
            await cron_jobs.get("none", app=app)


@ONE_ENGINE
async def test_wrong_cron_jobs_of_the_yaml_are_told_and_the_others_go_on(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One with an unknown handler, one whose rule never fires, one with a negative max_retry, one whose params do not
    fit; and a good one."""
    file = tmp_path / "cron.yaml"
    file.write_text(
        """
        schedules:
          nobody: {handler_name: smaple, every: 1s}
          never: {handler_name: sample, cron: 0 0 31 2 *}
          less: {handler_name: sample, every: 1s, max_retry: -1}
          odd: {handler_name: sample, every: 1s, handler_params: {sleep: 1}}
          good: {handler_name: sample, every: 1s, handler_params: {result: fine}}
        """
    )
    app = make_app(url, config=file)
    with caplog.at_level(logging.ERROR):
        async with app, app.dispatcher(), app.worker():
            await until(lambda: ended(app, "good"))
            await until(lambda: ended(app, "odd"))
            assert [job.id for job in await cron_jobs.get_cron_jobs(app=app)] == ["good", "odd"]
    told = caplog.text
    assert "schedule 'nobody': no task named 'smaple'; did you mean 'sample'?; the other schedules go on" in told
    assert "cron job 'nobody': no task named 'smaple'; did you mean 'sample'?; the other cron jobs go on" in told
    assert "schedule 'never'" in told
    assert "schedule 'less': max_retry must be a whole number from 0, not -1" in told
    assert "cron job 'odd': handler 'sample': params do not fit: sleep = 1: no such parameter" in told
    (good, *_), (odd, *_) = [await get_executions(job_id=name, app=app) for name in ("good", "odd")]
    await app.close()
    assert (odd.status, odd.retry_count) == ("FAILED", 0)
    assert str(odd.error_message).startswith("params do not fit: sleep = 1: no such parameter; there are")
    assert good.result == "fine"


async def ended(app: Rowlock, job_id: str) -> bool:
    return any(found.status.final for found in await get_executions(job_id=job_id, app=app))
