"""An HTTP server of the test's own, which takes what is posted to it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Take = Callable[[str, bytes], tuple[int, bytes]]
"""Gets path and body, gives code and answer; called from several threads."""


class HttpReceiver:
    """Listens on a port of this machine; use it in a `with` block."""

    def __init__(self, take: Take) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                code, answer = take(self.path, _body(self))
                self.send_response(code)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") == "chunked":
        body = b"".join(_chunks(request.rfile))
    else:
        body = request.rfile.read(int(request.headers["Content-Length"]))
    return gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body


# Any: a file of the server's.
def _chunks(file: Any) -> Iterator[bytes]:  # noqa: ANN401 - see above
    while size := int(file.readline(), 16):
        yield file.read(size)
        file.readline()
    file.readline()
