"""A Sentry on the loopback, which keeps what it is sent."""

import gzip
import http.server
import threading
from typing import Any

from sentry_sdk.envelope import Envelope


class Receiver:
    """A Sentry on the loopback that keeps what it is sent."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []
        kept = self.raw

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kept.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.dsn = f"http://key@127.0.0.1:{self._server.server_port}/1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def events(self) -> list[dict[str, Any]]:
        envelopes = [Envelope.deserialize(body) for body in self.raw]
        return [dict(event) for each in envelopes if (event := each.get_event()) is not None]

    @property
    def text(self) -> str:
        return "\n".join(body.decode() for body in self.raw)
