"""The Python client against the gateway: what a user of the package writes."""

from __future__ import annotations

import queue
import socket
import threading

import pytest

from mqworker import App
from mqworker.queues import SkmqClient, SkmqListener, SkmqPush, SkmqRefused, SkmqReject, SkmqUnavailable
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from tests.services.skmq.plain_sockets import DEADLINE_S, a_name
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.deadline import wait_until
from tests.support.messages import open_store
from tests.support.real_server import RealServer


def test_what_is_sent_is_pushed_to_the_listener(node: SkmqNode) -> None:
    app, message = a_name("app"), a_name("m")
    pushes: queue.Queue[SkmqPush] = queue.Queue()
    with SkmqListener(pushes.put) as listener, SkmqClient(*node.address, timeout=DEADLINE_S) as client:
        client.ping()
        client.register(app, a_name("r"), listener.host, listener.port)

        first = client.send(app, message, b"line 1\r\n\r\nline 2")
        pushed = pushes.get(timeout=DEADLINE_S)
        client.publish(app, a_name("m"), b"to all")
        published = pushes.get(timeout=DEADLINE_S)

    assert not first.is_duplicate
    assert pushed == SkmqPush(app, message, b"line 1\r\n\r\nline 2")
    assert published.content == b"to all"


def test_a_message_that_is_rejected_comes_again(node: SkmqNode) -> None:
    app, pushes = a_name("app"), queue.Queue[SkmqPush]()

    def reject_the_first(push: SkmqPush) -> None:
        pushes.put(push)
        if pushes.qsize() == 1:
            raise SkmqReject

    with SkmqListener(reject_the_first) as listener, SkmqClient(*node.address, timeout=DEADLINE_S) as client:
        client.register(app, a_name("r"), listener.host, listener.port)
        client.send(app, a_name("m"), b"x")
        while pushes.qsize() < 2:
            threading.Event().wait(0.01)

    assert pushes.get() == pushes.get()


def test_a_message_pushed_twice_is_one_call_of_a_task(server: RealServer, node: SkmqNode) -> None:
    pushed_to, calls, pushes = a_name("app"), a_name("calls"), queue.Queue[str]()
    app = App("shop", settings=Settings(redis_url=server.url))

    @app.task(queue=calls)
    def charge(order: str) -> None: ...

    def take(push: SkmqPush) -> None:
        charge.using(id=push.msgid).enqueue(push.content.decode())
        pushes.put(push.msgid)
        if pushes.qsize() == 1:
            raise SkmqReject  # as if we were killed before the ack

    with SkmqListener(take) as listener, SkmqClient(*node.address, timeout=DEADLINE_S) as client:
        client.register(pushed_to, a_name("r"), listener.host, listener.port)
        client.send(pushed_to, a_name("m"), b"order 7")
        wait_until(lambda: pushes.qsize() == 2, "it is pushed again", DEADLINE_S)
    app.close()

    store = open_store(server.url)
    assert WorkQueue(calls, store).counts().ready == 1
    store.close()


def test_refusals_are_errors_with_the_servers_words(node: SkmqNode) -> None:
    with (
        SkmqClient(*node.address, timeout=DEADLINE_S) as client,
        pytest.raises(SkmqRefused, match="msgid required") as refused,
    ):
        client.send("app", "", b"x")

    assert refused.value.status == "reject"


def test_k27_replies_with_doubled_ends_are_read_once() -> None:
    """As the original server sends them."""
    reply = b'type=resp\r\ncontent={"status":"ack","content":"Message enqueue successful"}\r\n\r\n\r\n\r\n'
    with socket.create_server(("127.0.0.1", 0)) as original:

        def serve() -> None:
            connection, _ = original.accept()
            with connection:
                for _ in range(3):
                    connection.recv(65_536)
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        with SkmqClient(*original.getsockname(), timeout=DEADLINE_S) as client:
            contents = [client.send("app", a_name("m"), b"x").content for _ in range(3)]
            with pytest.raises(SkmqUnavailable):
                client.send("app", a_name("m"), b"x")

    assert contents == ["Message enqueue successful"] * 3
