"""The options of a task's jobs: given with `using`, else the task's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rowlock.core.errors import ConfigError, InvalidArguments
from rowlock.core.options import TaskOptions, checked
from rowlock.store.engine.ids import valid_id

OF_ONE_CALL = ("key", "job_id", "connection")  # arguments of `using` that are for one enqueue only


def chosen(options: TaskOptions, given: Mapping[str, Any], fixed_place: str | None = None) -> dict[str, Any]:
    """The options by field. `fixed_place` is described at `Task.chosen`."""
    rest = dict(given)
    of_one_call = {name: rest.pop(name) for name in OF_ONE_CALL if name in rest}
    if fixed_place is not None:
        for refused in ("batch", *OF_ONE_CALL):
            if refused in given:
                raise InvalidArguments(f"{fixed_place}: using({refused}=…) is for one enqueue only")
    if "unique" in rest and "key" not in of_one_call:
        raise InvalidArguments("unique= says how long a key is held: give key= as well")
    values = options.of_jobs() | checked("using", rest)
    if "key" in of_one_call and values["unique"] is None:
        values["unique"] = "until_done"
    return values


def chosen_id(given: Mapping[str, Any]) -> str:
    """The id that `using` gave to a job; empty if it gave none."""
    wanted = given.get("job_id")
    if wanted is None:
        return ""
    if (job_id := valid_id(wanted)) is None:
        raise InvalidArguments(f"job_id must be a UUID, not {wanted!r} (uuid.uuid5 makes one from any name)")
    return job_id


def check_redis(task: str, redis_url: str | None, given: Mapping[str, Any]) -> None:
    """Refuse to enqueue a job for Redis while no Redis is configured: no bridge would ever publish it."""
    if redis_url is None:
        raise ConfigError(
            f"task {task!r} runs on Redis, and no Redis is configured: set redis.url in the config file"
            " or ROWLOCK_REDIS__URL"
        )
    if given.get("timeout") is not None:
        raise InvalidArguments(f"timeout= is not supported behind Redis: task {task!r} has runs_on='redis'")
