"""A TCP proxy that lets a request through and cuts the line before the reply: a lost reply, made for real."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 20


class CuttingProxy:
    """Stands between a client and a server on loopback; harmless until told otherwise."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_open = True
        self._cuts_left = 0
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.cuts = 0
        """How many replies were lost."""

    @property
    def url(self) -> str:
        """Where clients connect to."""
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut_replies(self, times: int = 1) -> None:
        """Lose the replies of the next scripts that really run; all else passes."""
        self._cuts_left = times

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        # Closing does not wake a thread that waits in accept; one more connection does.
        with contextlib.suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass
        for thread in self._threads:  # before the listener is closed: an accept under way would fail
            thread.join(5)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            if not self._is_open:
                client.close()
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        server = socket.create_connection(("127.0.0.1", self._server_port))
        with client, server, contextlib.suppress(OSError):
            is_script = False
            while self._is_open:
                readable, _, _ = select.select([client, server], [], [], 0.1)
                if client in readable:
                    request = client.recv(_CHUNK_BYTES)
                    if not request:
                        return
                    is_script = is_script or b"EVAL" in request
                    server.sendall(request)
                if server in readable:
                    reply = server.recv(_CHUNK_BYTES)
                    if not reply:
                        return
                    if is_script and self._cuts_left and not reply.startswith(b"-NOSCRIPT"):
                        self._cuts_left -= 1
                        self.cuts += 1
                        return
                    is_script = False
                    client.sendall(reply)
