"""Logging of long-running commands such as `worker`; the library itself never configures logging.

A text line is `time level logger message key=value …`; a JSON line is one object. Control characters are escaped and
tracebacks are indented, so that the data of a job cannot forge a log line.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from rowlock.cli.kit.output import printable
from rowlock.core.errors import InvalidArguments

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "console", "json")  # console is an alias of text

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@dataclass(frozen=True, slots=True)
class LogOptions:
    log_level: Annotated[str, typer.Option(envvar="ROWLOCK_LOG_LEVEL", help="debug, info, warning or error")] = "info"
    log_format: Annotated[str, typer.Option(envvar="ROWLOCK_LOG_FORMAT", help="text (or console), or json")] = "text"


def configure_logs(options: LogOptions) -> None:
    """Send all logs to stderr. A line that was logged in a job has the job's fields."""
    level, format = options.log_level, options.log_format
    if level.lower() not in LEVELS:
        raise InvalidArguments(f"--log-level {level!r} (or ROWLOCK_LOG_LEVEL): expected one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise InvalidArguments(f"--log-format {format!r} (or ROWLOCK_LOG_FORMAT): expected one of {', '.join(FORMATS)}")
    from rowlock.signals.logs import JobFields

    handler = ToStderr(sys.stderr)
    handler.addFilter(JobFields())
    handler.setFormatter(JsonLines() if format == "json" else TextLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)


def flush_logs() -> None:
    """Flush log handlers, stdout and stderr before `os._exit`, which doesn't."""
    for stream in (*logging.getLogger().handlers, sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # a broken pipe, or a stream that a job has closed
            stream.flush()


class ToStderr(logging.StreamHandler[Any]):
    """Writes lines to stderr. A line that cannot be written is dropped: logging must not stop a job."""

    def handleError(self, record: logging.LogRecord) -> None:
        with suppress(Exception):
            super().handleError(record)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields logged with the message (`extra=`)."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class TextLines(logging.Formatter):
    """One line per record, with the traceback indented below."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        message = printable(record.getMessage())
        # Don't repeat fields that the message already contains as key=value.
        named = {word.partition("=")[0] for word in message.split()}
        fields = [
            f"{key}={_word(value)}" for key, value in extra_fields(record).items() if key not in named and value != ""
        ]
        lines = [" ".join([time, record.levelname, record.name, message, *fields])]
        lines += [f"    {printable(line)}" for line in _traceback(self, record).splitlines()]
        return "\n".join(lines)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in extra_fields(record).items() if key not in line}
        if text := _traceback(self, record):
            line["exception"] = text
        return json.dumps(line, default=str)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback of a record. A job's traceback is already text, because its exception stays in the worker."""
    if record.exc_text:
        return record.exc_text
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def _word(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False))
    return json.dumps(text, ensure_ascii=False) if " " in text and isinstance(value, str) else text
