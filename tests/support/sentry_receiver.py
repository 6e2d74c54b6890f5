"""A Sentry of the test's own: takes envelopes over HTTP and keeps their items."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


class SentryReceiver:
    """Listens on a port of this machine; use it in a `with` block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[tuple[str, dict[str, Any]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    body = b"".join(_chunks(self.rfile))
                else:
                    body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.keep(body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def dsn(self) -> str:
        """For `sentry_sdk.init`."""
        return f"http://key@127.0.0.1:{self._server.server_address[1]}/1"

    def items(self, kind: str) -> list[dict[str, Any]]:
        """What arrived of one kind: event, transaction, check_in."""
        with self._lock:
            return [item for each, item in self._items if each == kind]

    def keep(self, envelope: bytes) -> None:
        """Take one envelope."""
        _, *lines = envelope.split(b"\n")
        with self._lock:
            for header, payload in zip(lines[::2], lines[1::2], strict=False):
                self._items.append((json.loads(header)["type"], json.loads(payload)))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


# Any: a file of the server's.
def _chunks(file: Any) -> Iterator[bytes]:  # noqa: ANN401 - see above
    while size := int(file.readline(), 16):
        yield file.read(size)
        file.readline()
    file.readline()
