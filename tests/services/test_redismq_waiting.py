"""MQ.POP with BLOCK: it really waits, is woken by a push of any client, is fair, and loses nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mqworker.queues.work.queue import WorkQueue
from tests.support.deadline import wait_until
from tests.support.messages import a_message
from tests.support.real_node import RealNode
from tests.support.resp_client import RespClient

LONG_MS = 60_000


def waiting(node: RealNode) -> int:
    count: int = node.facts("gateway:redismq")["waiting"]
    return count


def wait_for_waiters(node: RealNode, count: int) -> None:
    wait_until(lambda: waiting(node) == count, f"{count} clients wait", 30)


def push_through_gateway(queue: WorkQueue, port: int) -> None:
    with RespClient(port) as client:
        client.say("MQ.PUSH", queue.name, "x")


def test_who_waits_in_vain_hears_so_in_time(redismq_port: int, queue: WorkQueue) -> None:
    with RespClient(redismq_port) as client:
        began = time.monotonic()
        assert client.say("MQ.POP", 1, "BLOCK", 150, queue.name) is None
        assert time.monotonic() - began >= 0.15

        queue.push(b"a")
        queue.pop()
        assert client.say("MQ.POP", 1, "BLOCK", 50, queue.name) is None
        assert client.say("PING") == b"PONG"


@pytest.mark.parametrize(
    "push",
    [
        lambda queue, _: queue.push(b"x"),
        lambda queue, _: queue.enqueue(a_message(b"x")),
        push_through_gateway,
    ],
    ids=["push", "enqueue", "gateway"],
)
def test_a_push_of_any_client_wakes_who_waits(
    redismq_node: RealNode, redismq_port: int, queue: WorkQueue, push: Callable[[WorkQueue, int], object]
) -> None:
    with RespClient(redismq_port) as client:
        client.send("MQ.POP", 1, "BLOCK", LONG_MS, queue.name)
        wait_for_waiters(redismq_node, 1)

        push(queue, redismq_port)

        assert [element for _, element in client.hear()] == [b"x"]
    wait_for_waiters(redismq_node, 0)


def test_nothing_waits_behind_a_pop_that_blocks_but_its_own_client(
    redismq_node: RealNode, redismq_port: int, queue: WorkQueue
) -> None:
    with RespClient(redismq_port) as client, RespClient(redismq_port) as other:
        client.send("MQ.POP", 1, "BLOCK", 0, queue.name)
        client.send("PING")
        wait_for_waiters(redismq_node, 1)
        assert other.say("PING") == b"PONG"

        assert len(other.say("MQ.PUSH", queue.name, "a")) == 1

        assert client.hear()[0][1] == b"a"
        assert client.hear() == b"PONG"


def test_who_came_first_is_served_first(redismq_node: RealNode, redismq_port: int, queue: WorkQueue) -> None:
    clients = [RespClient(redismq_port) for _ in range(5)]
    for place, client in enumerate(clients):
        client.send("MQ.POP", 1, "BLOCK", LONG_MS, queue.name)
        wait_for_waiters(redismq_node, place + 1)

    queue.push(b"0", b"1", b"2")
    served = [client.hear()[0][1] for client in clients[:3]]
    queue.push(b"3")
    served.append(clients[3].hear()[0][1])

    assert served == [b"0", b"1", b"2", b"3"]
    assert waiting(redismq_node) >= 1
    for client in clients:
        client.close()
    wait_for_waiters(redismq_node, 0)


def test_a_client_that_hangs_up_while_it_waits_takes_nothing(
    redismq_node: RealNode, redismq_port: int, queue: WorkQueue
) -> None:
    for _ in range(5):
        client = RespClient(redismq_port)
        client.send("MQ.POP", 5, "BLOCK", LONG_MS, queue.name)
        wait_for_waiters(redismq_node, 1)
        client.close()  # at about the same time as the push
        queue.push(b"a", b"b")
        wait_for_waiters(redismq_node, 0)

        wait_until(lambda: len(queue.inspect(0, 9)) == 2, "both are in line again", 30)
        assert queue.inspect_pending(0, 9) == []
        popped = queue.pop(5)
        assert [element for _, element in popped or ()] == [b"a", b"b"]
        queue.ack(*[item for item, _ in popped or ()])


def test_one_waits_at_several_queues(redismq_node: RealNode, redismq_port: int, queue: WorkQueue) -> None:
    with RespClient(redismq_port) as client:
        client.send("MQ.POP", 2, "block", LONG_MS, f"{queue.name}.other", queue.name)
        wait_for_waiters(redismq_node, 1)

        queue.push(b"a")

        assert [element for _, element in client.hear()] == [b"a"]


def test_who_waits_is_served_by_the_dispatcher_that_follows_a_killed_one(
    redismq_node: RealNode, redismq_port: int, queue: WorkQueue
) -> None:
    with RespClient(redismq_port) as client:
        client.send("MQ.POP", 1, "BLOCK", LONG_MS, queue.name)
        wait_for_waiters(redismq_node, 1)

        redismq_node.kill("dispatcher")
        queue.push(b"a")

        assert client.hear()[0][1] == b"a"
