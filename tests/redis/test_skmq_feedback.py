"""A consumer's word on a message that its gateway does not hold, wherever that message is meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqworker.actors.gateway_queues import GatewayQueues
from mqworker.actors.gateway_verbs import broker_verbs
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Release
from mqworker.queues.work import WorkQueue
from mqworker.queues.work_calls import WorkQueueOptions
from mqworker.store.store import Store
from tests.support.messages import open_store
from tests.support.real_server import RealServer

QUEUE, MSGID, MESSAGE = "skmq.app", "m", "m~q1"
FIRST, SECOND = ConsumerName("gateway-1"), ConsumerName("gateway-2")
RULES = [2, 60_000]


@pytest.fixture
def store(server: RealServer) -> Iterator[Store]:
    opened = open_store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    """With one message, pushed by the first gateway, which noted it."""
    queue = WorkQueue(QUEUE, store)
    assert carry_out(store, "skmq_send", QUEUE, MSGID, MESSAGE, "skmq.queue", b"x") == "stored"
    carry_out(store, "skmq_register", QUEUE, "one", "0 127.0.0.1 4000 one")
    return queue


def carry_out(store: Store, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - plain values
    return store.follow(broker_verbs(GatewayQueues(WorkQueueOptions()))[verb].begin(*arguments))


def push(store: Store, queue: WorkQueue, consumer: ConsumerName) -> int:
    """Claimed and noted, as before a push; the fence."""
    [delivery] = queue.claim(1, consumer=consumer)
    carry_out(store, "skmq_assign", QUEUE, consumer, [[delivery.fence, MESSAGE, MSGID, ""]])
    return delivery.fence


def feedback(store: Store, word: str) -> str:
    said: str = carry_out(store, "skmq_feedback", word, MSGID, ["", "127.0.0.1"], RULES)
    return said


def test_an_ack_settles_what_another_gateway_holds(store: Store, queue: WorkQueue) -> None:
    push(store, queue, FIRST)

    assert feedback(store, "ack") == "known"
    assert queue.counts().leased == 0
    assert queue.counts().totals["succeeded"] == 1
    assert feedback(store, "ack") == "unknown"


def test_an_ack_takes_out_what_waits_for_its_next_attempt(store: Store, queue: WorkQueue) -> None:
    push(store, queue, FIRST)
    assert feedback(store, "reject") == "known"
    assert queue.counts().delayed == 1

    assert feedback(store, "ack") == "known"
    assert queue.counts().delayed == 0


def test_an_ack_is_missed_while_a_message_changes_hands_and_counts_when_it_has(
    store: Store, queue: WorkQueue
) -> None:
    """The first gateway was taken for dead; the second just claimed it, and would push it all the same."""
    [delivery] = queue.claim(1, consumer=FIRST)
    carry_out(store, "skmq_assign", QUEUE, FIRST, [[delivery.fence, MESSAGE, MSGID, ""]])
    queue.settle(Release(delivery), consumer=FIRST)
    [again] = queue.claim(1, consumer=SECOND)

    assert feedback(store, "ack") == "missed"
    assert queue.counts().leased == 1
    carry_out(store, "skmq_assign", QUEUE, SECOND, [[again.fence, MESSAGE, MSGID, ""]])
    assert feedback(store, "ack") == "known"
    assert queue.counts().leased == 0
    assert queue.counts().totals["succeeded"] == 1


def test_an_error_buries_what_another_gateway_holds(store: Store, queue: WorkQueue) -> None:
    push(store, queue, FIRST)

    assert feedback(store, "error") == "known"
    assert queue.counts().dead == 1
    assert feedback(store, "error") == "unknown"


@pytest.mark.parametrize("word", ["ack", "arrived", "reject", "error"])
def test_a_word_on_a_message_that_nobody_knows(store: Store, word: str) -> None:
    assert feedback(store, word) == "unknown"
