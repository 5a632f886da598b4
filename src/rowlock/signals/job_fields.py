"""Which job a log line is about: its fields, and a filter that adds them to the lines of a handler."""

from __future__ import annotations

import logging
from typing import Any

from rowlock.core.current_job import running_job
from rowlock.core.job import Claimed


def job_fields(job: Claimed) -> dict[str, Any]:
    """The fields of every line about a job."""
    return {"job_id": job.id, "task": job.task, "attempt": job.attempt, "worker": job.worker}


class JobFields(logging.Filter):
    """Adds `job_id`, `task`, `attempt` and `worker` to each record that is logged while a job runs, whatever logger it
    is logged with. Add it to a handler: a filter of a logger does not see the records of the loggers below it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have. No record is dropped."""
        job = running_job()
        if job is not None:
            for name, value in job_fields(job).items():
                record.__dict__.setdefault(name, value)
        return True
