"""The two export tasks: who runs them depends on the settings, what they do is `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rowlock import Context, Permanent, Rowlock
from rowlock_apps.replays.export import FILE_NAMES, LONGEST_SECONDS, MP4, THUMBNAIL, export
from rowlock_apps.replays.replay import ExportFailed

QUEUE = "replays"


async def mp4(ctx: Context, replayId: str, inputPath: str, durationMs: int) -> None:
    """Export a replay as a video. The arguments have the names of the document's request message."""
    await _export(ctx, MP4, inputPath, durationMs)


async def thumbnail(ctx: Context, replayId: str, inputPath: str, durationMs: int) -> None:
    """Export one picture of a replay."""
    await _export(ctx, THUMBNAIL, inputPath, durationMs)


async def _export(ctx: Context, job_type: str, input_path: str, duration_ms: int) -> None:
    try:
        await export(job_type, Path(input_path), ctx.result_file(FILE_NAMES[job_type]), duration_ms, ctx.progress)
    except ExportFailed as failed:
        raise Permanent(str(failed), code=failed.code) from failed


def register(app: Rowlock) -> None:
    """Register both tasks: with a Redis in the settings for the worker behind it, else for the app's own worker. They
    are not public: only the routes, which check the replay's owner, create their jobs. Each has one try, because the
    document leaves retries to the operator."""
    far = app.settings.redis.url is not None
    for job_type, function in ((MP4, mp4), (THUMBNAIL, thumbnail)):
        options: dict[str, Any] = {"queue": QUEUE, "max_attempts": 1}
        if far:
            options |= {"runs_on": "redis", "request": _request(job_type)}
        else:
            options |= {"timeout": LONGEST_SECONDS}
        app.task(job_type, **options)(function)


def _request(job_type: str) -> dict[str, str | dict[str, str]]:
    """The document's request message. Its outputPath ends in a file name that a browser knows how to open."""
    return {
        "replayId": "args.replayId",
        "options": {
            "inputPath": "args.inputPath",
            "outputPath": f"job.outputPath/{FILE_NAMES[job_type]}",
            "durationMs": "args.durationMs",
            "ownerId": "job.owner",
            "createdAt": "job.createdAt",
        },
    }
