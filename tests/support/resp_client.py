"""A client of RESP on a plain socket: what is sent is what the test wrote, what comes is what was sent."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Any, Self

import hiredis

DEADLINE_S = 30.0


class RespClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._reader = hiredis.Reader()

    def say(self, *words: bytes | str | int) -> Any:  # noqa: ANN401 - whatever the reply is
        """Send one command and give its reply; errors are values here."""
        self.send(*words)
        return self.hear()

    def send(self, *words: bytes | str | int) -> None:
        """Send one command."""
        self.socket.sendall(packed(*words))

    def hear(self) -> Any:  # noqa: ANN401 - as above
        """The next reply."""
        reply = self._reader.gets()
        while reply is False:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError("closed by the gateway")
            self._reader.feed(data)
            reply = self._reader.gets()
        return reply

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the connection, whatever is said before it."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def packed(*words: bytes | str | int) -> bytes:
    """A command as bytes."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    bulks = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n" % len(parts) + bulks
