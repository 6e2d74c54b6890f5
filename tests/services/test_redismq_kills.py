"""Kill -9 of gateway, broker and dispatcher in the middle of ten thousand messages: lost 0.

What was answered is there; what was not answered may be there once, or not at all.
"""

from __future__ import annotations

import threading
from collections import Counter

import hiredis
import pytest

from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port
from tests.support.resp_client import RespClient, packed

MESSAGES = 10_000
BATCH = 50


class Producer(threading.Thread):
    """Pushes numbered elements, a few at a time, and notes which were answered. Never pushes one twice."""

    def __init__(self, port: int, queue: str) -> None:
        super().__init__(daemon=True)
        self.answered: set[bytes] = set()
        self.sent: set[bytes] = set()
        self._port = port
        self._queue = queue

    def run(self) -> None:
        client: RespClient | None = None
        for start in range(0, MESSAGES, BATCH):
            elements = [b"%d" % number for number in range(start, start + BATCH)]
            while client is None:
                client = self._connect()
            self.sent.update(elements)
            try:
                client.socket.sendall(b"".join(packed("MQ.PUSH", self._queue, each) for each in elements))
                for element in elements:
                    if not isinstance(client.hear(), hiredis.ReplyError):
                        self.answered.add(element)
            except OSError:
                client.close()
                client = None
        if client is not None:
            client.close()

    def _connect(self) -> RespClient | None:
        try:
            return RespClient(self._port)
        except OSError:
            return None


@pytest.mark.parametrize("victim", ["gateway:redismq", "broker", "dispatcher"])
def test_what_was_answered_is_there_and_nothing_is_there_twice(victim: str) -> None:
    port = free_port()
    settings = {"MQWORKER_GATEWAYS": f"redismq=127.0.0.1:{port}"}
    with RealServer() as server, RealNode(server.url, settings=settings) as node:
        producer = Producer(port, "q")
        producer.start()

        for kill in range(1, 4):
            wait_until(
                lambda kill=kill: len(producer.sent) >= kill * MESSAGES // 5, "the producer goes on", 120
            )
            node.kill(victim)
        popped = _pop_everything(port, node, producer, victim)
        producer.join(120)

        assert not producer.is_alive()
        with server.client() as raw:
            assert isinstance(raw.ping(), bool)
        counts = Counter(popped)
        assert [element for element, count in counts.items() if count > 1] == []
        assert producer.answered - set(counts) == set()
        assert set(counts) <= producer.sent
        if victim != "gateway:redismq":  # the gateway repeats what the others left unanswered
            assert len(producer.answered) == MESSAGES


def _pop_everything(port: int, node: RealNode, producer: Producer, victim: str) -> list[bytes]:
    """Pop until nothing is left, with a kill in between; what was popped and not heard is recovered."""
    popped: dict[bytes, bytes] = {}
    client, has_killed = RespClient(port), False
    while True:
        try:
            reply = client.say("MQ.POP", 100, "q")
            if not reply and not producer.is_alive():
                reply = client.say("MQ.RECOVER", "q", 1_000, 0)
            popped |= dict(reply or ())
            if reply:
                client.say("MQ.ACK", "q", *[item for item, _ in reply])
            elif not producer.is_alive():
                client.close()
                return list(popped.values())
        except OSError:
            client.close()
            wait_until(node.is_complete, "the gateway is back", 60)
            client = RespClient(port)
        if len(popped) > MESSAGES // 2 and not has_killed:
            has_killed = True
            node.kill(victim)
