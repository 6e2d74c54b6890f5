"""One queue, four programs: npm rsmq, PyRSMQ, rsmqctl and mqworker, each as it was installed."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from rsmq import RedisSMQ
from rsmq.cmd.exceptions import NoMessageInQueue
from rsmq.consumer import RedisSMQConsumerThread

from mqworker.model.settlement import Ack
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.queues.rsmq.queue import RsmqQueue
from tests.interop.conftest import OpenNode, RunRsmqctl
from tests.interop.rsmq_clients import NodeError, NodeRsmq
from tests.support.deadline import wait_until
from tests.support.messages import a_message, some_messages
from tests.support.real_server import RealServer

Q = "shared"
LONG_S = 300
CONSUMER_VT_S = 40
"""Long enough too; PyRSMQ leaves a sleeping thread behind each message for a quarter of it."""
IDLE_TURNS = 20
"""Looks at an empty queue, 10 ms apart, before a client of a crowd goes home."""


def python_receive(python: RedisSMQ, **options: object) -> dict[str, Any] | None:
    """What PyRSMQ receives, None where it raises."""
    try:
        received: dict[str, Any] = python.receiveMessage(qname=Q, quiet=True, **options).execute()
    except NoMessageInQueue:
        return None
    return received


def now_ms(raw: redis.Redis) -> int:
    seconds, microseconds = raw.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def test_a_queue_of_ours_is_listed_and_described_by_all(
    ours: RsmqClient, node: NodeRsmq, python: RedisSMQ, ctl: RunRsmqctl
) -> None:
    """M01."""
    ours.create_queue(Q)

    listed = (node("listQueues"), python.listQueues().execute(), ctl("queue", "list"))
    described = (
        node("getQueueAttributes", qname=Q),
        python.getQueueAttributes(qname=Q).execute(),
        json.loads(ctl("queue", "describe", "-n", Q)[1]),
    )

    assert listed == ([Q], {Q.encode()}, (0, f'["{Q}"]', ""))
    for attributes in described:
        assert {name: int(attributes[name]) for name in ("vt", "delay", "maxsize", "msgs")} == {
            "vt": 30,
            "delay": 0,
            "maxsize": 65_536,
            "msgs": 0,
        }


@pytest.mark.parametrize("made", [("npm", 65_536), ("python", 65_565), ("ctl", 65_535)])
def test_a_queue_that_another_program_made_is_ours_too(
    ours: RsmqClient, node: NodeRsmq, python: RedisSMQ, ctl: RunRsmqctl, made: tuple[str, int]
) -> None:
    """M02."""
    maker, maxsize = made
    make = {
        "npm": lambda: node("createQueue", qname=Q),
        "python": lambda: python.createQueue(qname=Q).execute(),
        "ctl": lambda: ctl("queue", "create", "-n", Q),
    }
    make[maker]()

    attributes = ours.get_queue_attributes(Q)
    sent = ours.send_message(Q, "hello")
    received = ours.receive_message(Q)

    assert (attributes.vt, attributes.delay, attributes.maxsize) == (30, 0, maxsize)
    assert received is not None
    assert (received.id, received.message) == (sent, b"hello")


def test_what_we_send_is_received_by_npm(ours: RsmqClient, node: NodeRsmq, raw: redis.Redis) -> None:
    """M03."""
    ours.create_queue(Q)
    before_ms = now_ms(raw)
    sent = ours.send_message(Q, "Grüße, 世界 😀")

    received = node("receiveMessage", qname=Q)

    assert (received["id"], received["message"], received["rc"]) == (sent, "Grüße, 世界 😀", 1)
    assert before_ms <= received["sent"] <= received["fr"] <= now_ms(raw)
    assert ours.receive_message(Q) is None


def test_what_npm_sends_is_received_by_us_and_hidden_from_all(
    ours: RsmqClient, node: NodeRsmq, python: RedisSMQ, raw: redis.Redis
) -> None:
    """M04."""
    node("createQueue", qname=Q, vt=20)
    sent = node("sendMessage", qname=Q, message="from Node")
    before_ms = now_ms(raw)

    received = ours.receive_message(Q)

    assert received is not None
    assert (received.id, received.message, received.rc) == (sent, b"from Node", 1)
    assert before_ms <= received.fr <= now_ms(raw)
    assert raw.hmget(f"rsmq:{Q}:Q", f"{sent}:rc", f"{sent}:fr", "totalrecv") == [
        b"1",
        b"%d" % received.fr,
        b"1",
    ]
    assert raw.zscore(f"rsmq:{Q}", sent) == received.fr + 20_000
    assert node("receiveMessage", qname=Q) == {}
    assert python_receive(python) is None


def test_a_message_shown_again_by_npm_is_received_by_python(
    ours: RsmqClient, node: NodeRsmq, python: RedisSMQ
) -> None:
    """M05."""
    ours.create_queue(Q)
    sent = ours.send_message(Q, "one after the other")
    first = ours.receive_message(Q)

    node("changeMessageVisibility", qname=Q, id=sent, vt=0)
    second = python_receive(python)

    assert first is not None
    assert second is not None
    assert (second["id"], second["rc"], second["ts"]) == (sent.encode(), 2, first.fr)


def test_what_we_deleted_is_gone_for_all_and_the_other_way_round(
    ours: RsmqClient, node: NodeRsmq, python: RedisSMQ, raw: redis.Redis
) -> None:
    """M06."""
    ours.create_queue(Q)
    one, two, three = ours.send_messages(Q, ["1", "2", "3"])
    ours.receive_messages(Q, 3)

    ours.delete_message(Q, one)
    node("deleteMessage", qname=Q, id=two)
    python.deleteMessage(qname=Q, id=three).execute()

    assert node("deleteMessage", qname=Q, id=one) == 0
    assert ours.delete_messages(Q, [one, two, three]) == [False] * 3
    assert raw.exists(f"rsmq:{Q}") == 0
    assert raw.hlen(f"rsmq:{Q}:Q") == 7


def test_a_queue_deleted_by_another_program_is_not_found(ours: RsmqClient, node: NodeRsmq) -> None:
    """M15."""
    ours.create_queue(Q)
    node("deleteQueue", qname=Q)

    assert ours.list_queues() == []
    with pytest.raises(NodeError) as theirs:
        node("sendMessage", qname=Q, message="x")
    with pytest.raises(Exception, match="Queue not found") as mine:
        ours.send_message(Q, "x")
    assert (getattr(mine.value, "name", ""), getattr(mine.value, "message", "")) == (
        theirs.value.name,
        theirs.value.message,
    )


@pytest.mark.parametrize(
    ("operation", "options"),
    [
        ("createQueue", {"qname": "a.b"}),
        ("createQueue", {"qname": ""}),
        ("createQueue", {"qname": "a" * 161}),
        ("createQueue", {"qname": Q}),
        ("createQueue", {"qname": "new", "vt": -1}),
        ("createQueue", {"qname": "new", "delay": 10_000_000}),
        ("createQueue", {"qname": "new", "maxsize": 1023}),
        ("setQueueAttributes", {"qname": "nowhere"}),
        ("setQueueAttributes", {"qname": "nowhere", "vt": 1}),
        ("deleteQueue", {"qname": "nowhere"}),
        ("getQueueAttributes", {"qname": "nowhere"}),
        ("popMessage", {"qname": "nowhere"}),
        ("sendMessage", {"qname": Q, "message": "x" * 65_537}),
        ("sendMessage", {"qname": Q, "message": 7}),
    ],
)
def test_we_refuse_in_the_words_of_npm(
    ours: RsmqClient, node: NodeRsmq, operation: str, options: dict[str, Any]
) -> None:
    """M12, M13, M14, M15, M19."""
    ours.create_queue(Q)
    verb = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in operation)

    with pytest.raises(NodeError) as theirs:
        node(operation, **options)
    with pytest.raises(Exception, match=r".") as mine:
        getattr(ours, verb)(**options)

    assert (getattr(mine.value, "name", ""), getattr(mine.value, "message", "")) == (
        theirs.value.name,
        theirs.value.message,
    )


def test_each_pops_what_the_other_sent(ours: RsmqClient, node: NodeRsmq, python: RedisSMQ) -> None:
    """M09."""
    ours.create_queue(Q)
    for message in ("1", "2"):
        ours.send_message(Q, message)
    node("sendMessage", qname=Q, message="3")

    by_node, by_python = node("popMessage", qname=Q), python.popMessage(qname=Q).execute()
    by_us = ours.pop_message(Q)

    assert by_us is not None
    assert (by_node["message"], by_python["message"], by_us.message) == ("1", b"2", b"3")
    assert ours.get_queue_attributes(Q).msgs == 0


def test_four_clients_in_turn_receive_all_in_the_order_of_sending(
    ours: RsmqClient, open_node: OpenNode, python: RedisSMQ
) -> None:
    """M10."""
    first, second = open_node(), open_node()
    ours.create_queue(Q, vt=LONG_S)
    sent: list[str] = []
    for n in range(100):
        sent.append(ours.send_message(Q, f"{n}"))
        sent.append(first("sendMessage", qname=Q, message=f"{n}"))
        sent.append(python.sendMessage(qname=Q, message=f"{n}").execute())

    received: list[str] = []
    for _ in range(75):
        received.append(first("receiveMessage", qname=Q)["id"])
        received.append(second("receiveMessage", qname=Q)["id"])
        received.append((python_receive(python) or {"id": b""})["id"].decode())
        received.append(getattr(ours.receive_message(Q), "id", ""))

    assert len(set(sent)) == 300
    assert received == sorted(sent)


def test_four_clients_at_once_lose_nothing_and_share_nothing(
    ours: RsmqClient, open_node: OpenNode, python: RedisSMQ
) -> None:
    """M10, with 2,000 messages from three senders and four clients that work at the same time."""
    nodes = [open_node(), open_node()]
    ours.create_queue(Q, vt=LONG_S)

    def send_all() -> None:
        ours.send_messages(Q, [f"batch-{n}" for n in range(1_000)])
        for n in range(500):
            ours.send_message(Q, f"single-{n}")
        for n in range(500):
            python.sendMessage(qname=Q, message=f"python-{n}").execute()

    def drain_here() -> list[str]:
        done: list[str] = []
        idle = 0
        while idle < IDLE_TURNS:
            received = ours.receive_message(Q)
            idle = 0 if received else idle + 1
            if received is None:
                time.sleep(0.01)
            elif ours.delete_message(Q, received.id):
                done.append(received.message.decode())
        return done

    def drain_with_python() -> list[str]:
        done: list[str] = []
        idle = 0
        while idle < IDLE_TURNS:
            received = python_receive(python, vt=LONG_S)
            idle = 0 if received else idle + 1
            if received is None:
                time.sleep(0.01)
            elif python.deleteMessage(qname=Q, id=received["id"]).execute():
                done.append(received["message"].decode())
        return done

    send_all()
    for client in nodes:
        client.ask("drain", qname=Q, idleTurns=IDLE_TURNS)
    with ThreadPoolExecutor(2) as threads:
        shares = [threads.submit(drain_here), threads.submit(drain_with_python)]
        done = [message for share in shares for message in share.result()]
    done += [message for client in nodes for message in client.answer()]

    wanted = [f"batch-{n}" for n in range(1_000)] + [
        f"{k}-{n}" for k in ("single", "python") for n in range(500)
    ]
    assert sorted(done) == sorted(wanted)
    assert ours.get_queue_attributes(Q).msgs == 0


def test_bytes_that_are_no_text_reach_a_python_client_unharmed(ours: RsmqClient, python: RedisSMQ) -> None:
    """M24."""
    ours.create_queue(Q)
    ours.send_message(Q, bytes(range(256)))

    received = python_receive(python, vt=0)
    again = ours.receive_message(Q)

    assert received is not None
    assert again is not None
    assert received["message"] == again.message == bytes(range(256))


def test_rsmqctl_and_we_hand_a_message_to_and_fro(ours: RsmqClient, ctl: RunRsmqctl) -> None:
    ctl("queue", "create", "-n", Q)
    _, sent, _ = ctl("message", "send", "-n", Q, "-m", "Hello, World")

    here = ours.receive_message(Q, vt=LONG_S)
    nothing = ctl("message", "receive", "-n", Q)
    ours.change_message_visibility(Q, sent, vt=0)
    there = json.loads(ctl("message", "receive", "-n", Q)[1])
    shown = ctl("message", "visibility", "-n", Q, "-i", sent, "-t", "0")
    deleted = ctl("message", "delete", "-n", Q, "-i", sent)

    assert here is not None
    assert (here.id, here.message) == (sent, b"Hello, World")
    assert nothing == (0, f"No messages on queue: {Q}", "")
    assert there == {"id": sent, "message": "Hello, World", "rc": 2, "ts": here.fr}
    assert (shown[0], deleted[0]) == (0, 0)
    assert ours.get_queue_attributes(Q).msgs == 0


def test_a_task_sent_by_node_is_claimed_here_and_acked(ours: RsmqClient, node: NodeRsmq) -> None:
    queue = RsmqQueue("tasks", ours.store)
    node("createQueue", qname="tasks")
    sent = node(
        "sendMessage", qname="tasks", message=json.dumps({"task": "shop.send_mail", "args": [1, "ä"]})
    )

    claimed = queue.claim()
    hidden = node("receiveMessage", qname="tasks")
    lost = queue.settle(*map(Ack, claimed))

    assert [(each.id, each.task, each.body) for each in claimed] == [
        (sent, "shop.send_mail", b"\x92\x92\x01\xa2\xc3\xa4\x80")
    ]
    assert (hidden, lost) == ({}, [])
    assert node("getQueueAttributes", qname="tasks")["msgs"] == 0


def test_a_task_of_ours_can_be_read_by_node(ours: RsmqClient, node: NodeRsmq) -> None:
    queue = RsmqQueue("tasks", ours.store)
    message = a_message(b"\x92\x92\x01\xa2\xc3\xa4\x80", task="shop.send_mail")
    queue.enqueue(message)

    received = json.loads(node("receiveMessage", qname="tasks")["message"])

    assert received == {"id": message.id, "task": "shop.send_mail", "args": [1, "ä"], "kwargs": {}}


def test_an_ack_is_refused_when_node_received_the_message_meanwhile(ours: RsmqClient, node: NodeRsmq) -> None:
    queue = RsmqQueue("tasks", ours.store)
    queue.enqueue(a_message())
    claimed = queue.claim()[0]
    (taken,) = ours.store.send([("ZRANGE", "rsmq:tasks", 0, -1)], "rsmq:tasks")[0]

    node("changeMessageVisibility", qname="tasks", id=taken.decode(), vt=0)
    received = node("receiveMessage", qname="tasks", vt=LONG_S)
    lost = queue.settle(Ack(claimed))

    assert received["rc"] == 2
    assert lost == [Ack(claimed)]
    assert node("deleteMessage", qname="tasks", id=received["id"]) == 1


def test_a_delivery_that_node_prolonged_is_still_ours(ours: RsmqClient, node: NodeRsmq) -> None:
    queue = RsmqQueue("tasks", ours.store)
    queue.enqueue(a_message())
    claimed = queue.claim(lease_ms=10_000)[0]
    (taken,) = ours.store.send([("ZRANGE", "rsmq:tasks", 0, -1)], "rsmq:tasks")[0]

    node("changeMessageVisibility", qname="tasks", id=taken.decode(), vt=LONG_S)

    assert queue.extend(claimed) == []
    assert queue.settle(Ack(claimed)) == []


def test_what_node_sends_that_is_no_task_rests_with_the_dead(ours: RsmqClient, node: NodeRsmq) -> None:
    queue = RsmqQueue("tasks", ours.store)
    node("createQueue", qname="tasks")
    sent = node("sendMessage", qname="tasks", message="not a task")

    claimed = queue.claim()
    (burial,) = queue.burials()

    assert claimed == []
    assert (burial.id, burial.message, burial.reason) == (sent, b"not a task", "undecodable")
    assert node("receiveMessage", qname="tasks") == {}
    assert node("listQueues") == ["tasks"]


def test_a_consumer_of_pyrsmq_and_a_worker_of_ours_share_the_work(
    ours: RsmqClient, server: RealServer
) -> None:
    """M23: 2,000 tasks, each done exactly once."""
    queue = RsmqQueue("tasks", ours.store, vt=LONG_S)
    messages = some_messages(2_000, task="count")
    queue.enqueue(*messages)
    done_here: list[str] = []
    done_there: list[str] = []

    def process(**received: Any) -> bool:  # noqa: ANN401 - whatever PyRSMQ has to say
        done_there.append(received["message"]["id"])
        return True

    consumer = RedisSMQConsumerThread(
        "tasks", process, host="127.0.0.1", port=str(server.port), vt=CONSUMER_VT_S, empty_queue_delay=0.01
    )

    def work() -> None:
        while claimed := queue.claim(3, lease_ms=LONG_S * 1000):
            lost = queue.settle(*map(Ack, claimed))
            done_here.extend(delivery.id for delivery in claimed if Ack(delivery) not in lost)

    worker = threading.Thread(target=work)
    consumer.start()
    wait_until(lambda: done_there, "the consumer of PyRSMQ began")
    worker.start()
    worker.join(60)
    wait_until(lambda: ours.get_queue_attributes("tasks").msgs == 0, "nothing was left")
    consumer.stop()
    consumer.join(60)

    assert sorted(done_here + done_there) == sorted(message.id for message in messages)
    assert done_here
    assert done_there
