"""The port on which a worker answers Prometheus and the probes of containers: /metrics, /livez, /readyz.

It answers from separate threads: when a handler blocks the worker's event loop, the probes must still report that. The
answers contain names of queues and tasks, but no data of jobs. There is no login, so the port is bound to the loopback
unless `worker.metrics_host` is set.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rowlock.core.errors import ConfigError, needs
from rowlock.public_web import LOOPBACK, is_loopback, without_port
from rowlock.signals.metrics import Samples

log = logging.getLogger("rowlock.metrics")

REQUEST_SECONDS = 5.0  # for one request to arrive
REQUESTS = 8  # that are answered at the same time; more are refused
TRY_AGAIN_SECONDS = 2.0  # while another process, such as one that is being replaced, still has the port

Meters = Sequence[Callable[[], Samples]]
Probe = Callable[[], str | None]  # what is wrong; None if nothing is


def shown(meters: Meters, accept: str) -> tuple[bytes, str]:
    """The metrics as text in the format that the Accept header asks for, and its content type. ConfigError if the
    library is not installed."""
    with needs("metrics", "metrics need a library"):
        from rowlock.signals.prometheus import exposed
    return exposed(list(meters), accept)  # a copy: another thread may add a meter


class Endpoint:
    """Serves metrics and probes on one port until it is closed. Meters and probes are called in other threads."""

    def __init__(self, host: str, port: int, meters: Meters, live: Probe, ready: Probe) -> None:
        """Listen. A port that is in use is tried again in the background: jobs matter more than metrics, and a process
        that is being replaced may still have it. ConfigError if this process may never have it, or if the library for
        metrics is not installed."""
        shown([], "")  # a missing library must be an error now, not for the first scraper
        self._bind = partial(_Server, host, port, meters, {"/livez": live, "/readyz": ready})
        self._over = threading.Event()
        self._server: _Server | None = None
        try:
            self._server = self._bind()
        except OSError as error:
            where = f"{host}:{port}"
            if error.errno != errno.EADDRINUSE:
                raise ConfigError(
                    f"worker.metrics_port: cannot listen on {where}: {error.strerror}; choose another"
                    " worker.metrics_port or worker.metrics_host"
                ) from None
            log.warning("Metrics are not served yet: %s is in use; trying again", where)
        self._thread = threading.Thread(target=self._serve, name="rowlock-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int] | None:
        return None if self._server is None else self._server.server_address[:2]  # type: ignore[return-value]

    def _serve(self) -> None:
        while self._server is None:
            if self._over.wait(TRY_AGAIN_SECONDS):
                return
            with suppress(OSError):
                self._server = self._bind()
        log.info("Metrics at http://%s:%d/metrics", *self._server.server_address[:2])
        with self._server:
            while not self._over.is_set():
                self._server.handle_request()  # returns after `timeout` even without a request

    def close(self) -> None:
        self._over.set()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 16
    timeout = 0.2

    def __init__(self, host: str, port: int, meters: Meters, probes: Mapping[str, Probe]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.meters, self.probes, self.local_only = meters, probes, is_loopback(host)
        self._free = threading.BoundedSemaphore(REQUESTS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind. The base class would look up its own name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; refuse if too many threads are busy."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that disconnects early."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_SECONDS
    server_version, sys_version = "rowlock", ""
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        host = self.headers.get("Host", "localhost")
        if self.server.local_only and without_port(host).lower() not in LOOPBACK:
            # A page in a browser on this machine may reach the loopback under its own name (DNS rebinding).
            self._answer(421, b"unknown host\n")
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, *shown(self.server.meters, self.headers.get("Accept", "")))
        elif path in self.server.probes:
            wrong = self.server.probes[path]()
            self._answer(200 if wrong is None else 503, f"{wrong or 'ok'}\n".encode())
        else:
            self._answer(404, b"there are /metrics, /livez and /readyz\n")

    do_HEAD = do_GET

    def _answer(self, status: int, body: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a line for each scrape would be noise."""
