"""Keys are rotated while producers send and nodes run: nothing is lost, nothing is buried."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from mqworker import App, Job
from mqworker.model.keyring import new_key
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.shop_node import shop_node

WAIT_S = 60.0
OLD, NEW = new_key("old", "sign"), new_key("new", "encrypt")
RINGS = [OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW]
"""As the guide says: the new key in the second place, then in the first, then alone."""
APP = """
from mqworker import App

app = App("shop")


@app.task(name="echo")
def echo(number: int) -> int:
    return number
"""


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


def a_node(server: RealServer, ring: str) -> RealNode:
    return shop_node(server, APP, {"MQWORKER_WORKERS": "1", "MQWORKER_KEYS": ring})


class Sender:
    """Enqueues one call after the other, with the keys it was given last."""

    def __init__(self, server: RealServer) -> None:
        self._server = server
        self.jobs: list[tuple[int, Job[int]]] = []
        self._is_over = threading.Event()
        self._ring = RINGS[0]
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def use(self, ring: str) -> None:
        self._ring = ring

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(WAIT_S)

    def _send(self) -> None:
        ring, app = "", None
        while not self._is_over.is_set():
            if ring != self._ring:
                ring = self._ring
                app = App("shop", settings=Settings(redis_url=self._server.url, keys=ring))
            assert app is not None
            number = len(self.jobs)
            self.jobs.append((number, app.named("echo").using(queue="default").enqueue(number)))
            self._is_over.wait(0.005)


def test_keys_are_rotated_node_by_node_and_nothing_is_lost(server: RealServer) -> None:
    sender = Sender(server)
    node = a_node(server, RINGS[0])
    node.__enter__()
    try:
        for ring in RINGS[1:-1]:
            sender.use(ring)  # before the node, on purpose: what it cannot open yet waits
            sent = len(sender.jobs)
            wait_until(lambda sent=sent: len(sender.jobs) > sent + 20, "some are sent", WAIT_S)
            after = a_node(server, ring)
            after.__enter__()
            node.__exit__(None, None, None)
            node = after
        sent = len(sender.jobs)
        wait_until(lambda: len(sender.jobs) > sent + 20, "some more are sent", WAIT_S)
        sender.close()
        reader = App("shop", settings=Settings(redis_url=server.url, keys=RINGS[2]))

        for number, job in sender.jobs:
            assert reader.job(job.id).result(timeout=WAIT_S) == number
        assert reader.work_queue().counts().dead == 0
        reader.close()
    finally:
        sender.close()
        node.__exit__(None, None, None)


def test_what_no_key_opens_waits_for_a_node_that_has_it(server: RealServer) -> None:
    with a_node(server, OLD):
        app = App("shop", settings=Settings(redis_url=server.url, keys=f"{NEW},{OLD}"))
        job = app.named("echo").using(queue="default").enqueue(7)
        wait_until(lambda: app.work_queue().counts().delayed == 1, "it is put aside", WAIT_S)

        with a_node(server, f"{OLD},{NEW}"):
            wait_until(lambda: job.status() == "succeeded", "a node that has the key runs it", WAIT_S)
        assert job.result(timeout=WAIT_S) == 7
        app.close()


def test_a_node_without_keys_does_not_bury_what_is_sealed(server: RealServer) -> None:
    node = shop_node(server, APP, {"MQWORKER_WORKERS": "1"})
    app = App("shop", settings=Settings(redis_url=server.url, keys=NEW))
    with node:
        job = app.named("echo").using(queue="default").enqueue(7)
        wait_until(lambda: app.work_queue().counts().delayed == 1, "it is put aside", WAIT_S)
    with a_node(server, NEW):
        assert job.result(timeout=WAIT_S) == 7
    app.close()
