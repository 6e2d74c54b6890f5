"""Foreign programs on plain sockets: a producer, and a consumer that listens. They share no code with us."""

from __future__ import annotations

import itertools
import json
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

DEADLINE_S = 60.0
END = b"\r\n\r\n"

Fields = dict[str, bytes]
Reaction = Callable[["Pushed"], None]

_numbers = itertools.count(1)


def a_name(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}-{next(_numbers)}"


def frame(**fields: str | bytes) -> bytes:
    """A frame as the document writes it."""
    lines = [
        name.encode() + b"=" + (value if isinstance(value, bytes) else value.encode())
        for name, value in fields.items()
    ]
    return b"\r\n".join(lines) + END


def fields_of(text: bytes) -> Fields:
    """A frame taken apart, without its end."""
    if b"=" not in text:
        return {text.decode(): b""}
    head, has_content, content = text.partition(b"\r\ncontent=")
    if has_content and b"\r\nlength=" in head:
        return fields_of(head) | {"content": content}
    return {name.decode(): value for name, _, value in (line.partition(b"=") for line in text.split(b"\r\n"))}


class Plain:
    """One connection, as a program in another language would have it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=DEADLINE_S)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_byte_by_byte(self, data: bytes) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(data)):
            self.socket.sendall(data[position : position + 1])

    def read(self) -> bytes:
        """The next frame without its end; b'' when the other side closed."""
        while END not in self._buffer:
            data = self.socket.recv(65_536)
            if not data:
                return b""
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(END)
        return text

    def read_exactly(self, count: int) -> bytes:
        """Exactly `count` bytes."""
        while len(self._buffer) < count:
            data = self.socket.recv(65_536)
            if not data:
                break
            self._buffer += data
        taken, self._buffer = self._buffer[:count], self._buffer[count:]
        return taken

    def reply(self) -> dict[str, Any]:
        """The JSON of the next `resp` frame."""
        fields = fields_of(self.read())
        assert fields["type"] == b"resp"
        reply: dict[str, Any] = json.loads(fields["content"])
        return reply

    def ask(self, **fields: str | bytes) -> dict[str, Any]:
        """Send one frame and read its answer."""
        self.send(frame(**fields))
        return self.reply()

    def register(self, app: str, recipient: str, port: int, weight: int = 0) -> dict[str, Any]:
        """Register a recipient on this machine."""
        about = {"id": recipient, "app_id": app, "host": "127.0.0.1", "port": str(port), "weight": weight}
        return self.ask(type="register", content=json.dumps(about))

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Pushed:
    """A message that was pushed, with the connection it came on."""

    def __init__(self, fields: Fields, connection: socket.socket) -> None:
        self.fields = fields
        self.connection = connection
        self._buffer = b""

    @property
    def msgid(self) -> str:
        return self.fields["msgid"].decode()

    def say(self, feedback: str) -> bytes:
        """Answer on the same connection and read what comes back; b'' when it was closed."""
        self.connection.sendall(frame(type=feedback, msgid=self.msgid))
        return self.read()

    def read(self) -> bytes:
        while END not in self._buffer:
            data = self.connection.recv(65_536)
            if not data:
                return b""
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(END)
        return text


class Consumer:
    """Listens; answers pings, keeps pushes, and reacts to each in a thread of its own."""

    def __init__(self, react: Reaction | None = None, *, port: int = 0, says_pong: bool = True) -> None:
        self.pushes: queue.Queue[Pushed] = queue.Queue()
        self.count = 0
        self.pings = 0
        self._react = react
        self._says_pong = says_pong
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def next(self) -> Pushed:
        """The next push."""
        return self.pushes.get(timeout=DEADLINE_S)

    def close(self) -> None:
        # shutdown first: it wakes the thread that sits in accept
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        buffer = b""
        with connection:
            while END not in buffer:
                data = connection.recv(65_536)
                if not data:
                    return
                buffer += data
            while (missing := _missing(buffer)) > 0:
                buffer += connection.recv(missing)
            text = buffer.removesuffix(END)
            if text == b"ping":
                self.pings += 1
                connection.sendall(b"pong\r\n\r\n" if self._says_pong else b"what?\r\n\r\n")
                return
            self._take(Pushed(fields_of(text), connection))

    def _take(self, pushed: Pushed) -> None:
        self.count += 1
        if self._react is not None:
            self._react(pushed)
            self.pushes.put(pushed)
            return
        self.pushes.put(pushed)
        threading.Event().wait(DEADLINE_S)  # the test answers; the connection stays open


def _missing(buffer: bytes) -> int:
    """How many bytes are still to come of a frame that says its length."""
    head, found, content = buffer.partition(b"\r\ncontent=")
    fields: Mapping[str, bytes] = fields_of(head) if found else {}
    if b"length" not in head or not found:
        return 0
    return int(fields["length"]) + len(END) - len(content)


def acknowledge(pushed: Pushed) -> None:
    """Ack at once."""
    pushed.say("ack")


def reject(pushed: Pushed) -> None:
    """Reject at once."""
    pushed.say("reject")
