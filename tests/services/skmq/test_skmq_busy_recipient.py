"""Many messages for a recipient that serves one connection after another: none is retried."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from types import TracebackType
from typing import Self

from tests.services.skmq.plain_sockets import END, Plain, a_name, fields_of, frame
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

MESSAGES, BACKLOG, WORK_S = 60, 5, 0.25


class OneAfterAnother:
    """A recipient with one thread and a short backlog."""

    def __init__(self) -> None:
        self.seen: Counter[bytes] = Counter()
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(30)
                self._receive(connection)

    def _receive(self, connection: socket.socket) -> None:
        text = b""
        while END not in text:
            data = connection.recv(65_536)
            if not data:
                return
            text += data
        if text.startswith(b"ping"):
            connection.sendall(b"pong" + END)
            return
        message = fields_of(text.partition(END)[0])["msgid"]
        time.sleep(WORK_S)
        self.seen[message] += 1
        connection.sendall(frame(type="ack", msgid=message))
        connection.recv(65_536)


def test_messages_are_pushed_as_fast_as_the_recipient_accepts_them() -> None:
    with RealServer() as server, SkmqNode(server.url) as node, OneAfterAnother() as recipient:
        app = a_name("app")
        with Plain(node.address) as client:
            client.register(app, a_name("r"), recipient.port)
            sent = [a_name("m").encode() for _ in range(MESSAGES)]
            for message in sent:
                client.ask(type="queue", appid=app, msgid=message, content="x")
            wait_until(lambda: len(recipient.seen) == MESSAGES, "all are pushed", 60)
            wait_until(lambda: node.facts("gateway:skmq")["acked"] == MESSAGES, "all are acknowledged", 60)
            retried = node.facts("gateway:skmq")["retried"]

    assert recipient.seen == Counter(sent)
    assert retried == 0
