"""An SKMQ consumer: listens, answers pings, and hands what is pushed to a function of the user's."""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from mqworker.log import get_logger
from mqworker.queues.skmq.frame import (
    BrokenStream,
    Frame,
    FrameDecoder,
    Item,
    Word,
    encode_frame,
    encode_word,
)

_READ_BYTES = 65_536
_ANSWER_S = 60.0


class SkmqReject(Exception):
    """Raised by the function: push the message again later."""


@dataclass(frozen=True, slots=True)
class SkmqPush:
    """A message that was pushed."""

    app: str
    msgid: str
    content: bytes


OnPush = Callable[[SkmqPush], None]
"""Returns when the message is safe: an ack. `SkmqReject` asks for it again; any other error is final."""


class SkmqListener:
    """Serves pushes in threads until it is closed. Register its `port` with `SkmqClient.register`."""

    def __init__(
        self,
        on_push: OnPush,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Port 0 lets the system choose; `tls` is for a gateway that pushes by TLS."""
        self._server = _Server((host, port), _handler_of(on_push, tls))
        self.host, self.port = self._server.server_address[0], self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; pushes under way are finished."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no more."""
        self.close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 512
    daemon_threads = True


def _handler_of(on_push: OnPush, tls: ssl.SSLContext | None) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(_ANSWER_S)
            if tls is not None:
                with suppress(OSError), tls.wrap_socket(self.request, server_side=True) as self.request:
                    self._serve()
            else:
                self._serve()

        def _serve(self) -> None:
            decoder, items = FrameDecoder(), deque[Item]()
            while True:
                try:
                    data = self.request.recv(_READ_BYTES)
                    decoder.feed(data, items.append)
                    while items:
                        self._answer(items.popleft())
                except (OSError, BrokenStream):
                    return
                if not data:
                    return

        def _answer(self, item: Item) -> None:
            if item is Word.PING:
                self.request.sendall(encode_word(Word.PONG))
            elif isinstance(item, Frame) and item.type == "push":
                # First that it is here, then what became of it: so the server knows whom it waits for.
                self.request.sendall(encode_frame("arrived", msgid=item.msgid))
                self.request.sendall(encode_frame(_feedback(on_push, item), msgid=item.msgid))

    return Handler


def _feedback(on_push: OnPush, frame: Frame) -> str:
    try:
        on_push(SkmqPush(frame.appid, frame.msgid, frame.content))
    except SkmqReject:
        return "reject"
    except Exception:  # noqa: BLE001 - whatever the user's function raises, the server is told
        get_logger(part="skmq").exception("push_failed", appid=frame.appid, msgid=frame.msgid)
        return "error"
    return "ack"
