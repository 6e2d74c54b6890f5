"""A proxy that passes every command on and loses replies: every so often it hangs up instead."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from types import TracebackType
from typing import Self


class LossyProxy:
    """Listens on a loopback port in front of `backend_port`; every `every`-th reply is lost."""

    def __init__(self, backend_port: int, *, every: int) -> None:
        self._backend_port = backend_port
        self._every = every
        self._replies = itertools.count(1)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            client,
            socket.create_connection(("127.0.0.1", self._backend_port)) as backend,
        ):
            asking = threading.Thread(target=_pass_on, args=(client, backend), daemon=True)
            asking.start()
            while data := backend.recv(65536):
                if next(self._replies) % self._every == 0:
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    break
                client.sendall(data)
            asking.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
