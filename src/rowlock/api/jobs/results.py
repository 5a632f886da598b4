"""Downloads of result files: streamed from a file that is checked after it was opened, or by a redirect to a
short-lived signed URL of the object storage."""

from __future__ import annotations

import base64
import logging
import mimetypes
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Response
from fastapi.responses import StreamingResponse

from rowlock.api.context import JobId, Serving, Who, api_router
from rowlock.api.problems import Refusal, documented
from rowlock.client.results.results import Content, OutsideOfFolder, Results
from rowlock.core.errors import ResultsUnavailable
from rowlock.core.job import Job
from rowlock.core.states import State

log = logging.getLogger("rowlock.api")

RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

router = api_router(prefix="/api/jobs", tags=["results"])


@router.get(
    "/{jobId}/result",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file, or the value that the task returned",
            "content": {"application/octet-stream": {}},
        },
        307: {"description": "The file is at the address in Location, for a short time (results.signed_urls)"},
        206: {"description": "The range that was asked for", "content": {"application/octet-stream": {}}},
        **documented(
            *("JOB_NOT_FOUND", "RESULT_NOT_FOUND", "NOT_FINISHED", "RESULT_GONE"),
            *("INVALID_OUTPUT_PATH", "RANGE_NOT_SATISFIABLE", "RESULTS_UNAVAILABLE"),
        ),
    },
)
async def download_result(
    job_id: JobId,
    service: Serving,
    asker: Who,
    range_: Annotated[str | None, Header(alias="Range", max_length=1000)] = None,
) -> Response:
    """The file that a job made."""
    job = await service.job_of(asker, job_id)
    if job.state is not State.SUCCEEDED:
        raise Refusal("NOT_FINISHED", f"the job is {job.state}")
    if job.result_uri is None:
        raise Refusal("RESULT_NOT_FOUND", "the job has no result file; its return value is `result` of the job")
    return await _download(service, job, job.result_uri, range_)


async def _download(service: Serving, job: Job, uri: str, wanted: str | None) -> Response:
    results, headers = service.client.results, _headers(job, name := uri.rpartition("/")[2])
    try:
        with ExitStack() as opened:
            content = await results.run(opened.enter_context, results.content(uri))
            if (address := await results.run(results.signed_url, uri)) is not None:
                return Response(None, 307, headers | {"Location": address, "Cache-Control": "no-store"})
            first, last = _range(wanted, content.size)
            held = opened.pop_all()
    except OutsideOfFolder:
        raise Refusal("INVALID_OUTPUT_PATH") from None
    except ResultsUnavailable:
        raise Refusal("RESULTS_UNAVAILABLE", headers={"Retry-After": "5"}) from None
    except FileNotFoundError:
        raise Refusal("RESULT_GONE") from None
    except OSError as error:  # no free descriptor, a disk error: the file may exist
        log.warning("the result of job %s cannot be opened: %s", job.id, error)
        raise Refusal("RESULTS_UNAVAILABLE", headers={"Retry-After": "5"}) from None
    headers |= {"Accept-Ranges": "bytes", "Content-Length": str(last - first + 1)}
    partly = wanted is not None and last - first + 1 < content.size
    if partly:
        headers["Content-Range"] = f"bytes {first}-{last}/{content.size}"
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return StreamingResponse(
        _stream(results, held, content, first, last + 1 - first), 206 if partly else 200, headers, media_type=kind
    )


def _headers(job: Job, name: str) -> dict[str, str]:
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Cache-Control": "private, no-cache",
    }
    if (digest := _digest(job.result_checksum)) is not None:
        headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return headers


async def _stream(results: Results, held: ExitStack, content: Content, at: int, left: int) -> AsyncIterator[bytes]:
    with held:
        while left > 0 and (part := await results.run(content.read, at, min(content.chunk, left))):
            at, left = at + len(part), left - len(part)
            yield part


def _range(wanted: str | None, size: int) -> tuple[int, int]:
    """First and last byte of the requested range. Several ranges, or an invalid one, are ignored: the whole file."""
    found = RANGE.fullmatch(wanted.strip()) if wanted else None
    if found is None or found.groups() == ("", ""):
        return 0, size - 1
    first, last = found.groups()
    if not first:  # the last N bytes
        start, end = max(0, size - int(last)), size - 1
    else:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
    if start >= size or start > end:
        raise Refusal("RANGE_NOT_SATISFIABLE", headers={"Content-Range": f"bytes */{size}"})
    return start, end


def _digest(checksum: str | None) -> str | None:
    kind, _, hex_ = (checksum or "").rpartition(":")
    if kind not in ("", "sha256") or not re.fullmatch("[0-9a-fA-F]{64}", hex_):
        return None
    return base64.b64encode(bytes.fromhex(hex_)).decode()
