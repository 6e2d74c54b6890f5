"""A consumer's word on a message that its gateway does not hold, wherever that message is meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.verbs.table import broker_verbs
from mqworker.model.delivery import Delivery
from mqworker.model.names import ConsumerName
from mqworker.model.settlement import Release
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.procedure import Procedure, Step
from mqworker.store.store import Store

QUEUE, MSGID, MESSAGE = "skmq.app", "m", "m~q1"
FIRST, SECOND, THIRD = (ConsumerName(f"gateway-{number}") for number in (1, 2, 3))
RULES = [2, 60_000]
MOST_STEPS = 10
"""Into the second try of an ack whose message was not found at the first."""


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    """With one message, pushed by the first gateway, which noted it."""
    queue = WorkQueue(QUEUE, store)
    assert carry_out(store, "skmq_send", QUEUE, MSGID, MESSAGE, "skmq.queue", b"x") == "stored"
    carry_out(store, "skmq_register", QUEUE, "one", "0 127.0.0.1 4000 one")
    return queue


def procedure_of(verb: str, *arguments: Any) -> Procedure[Any]:  # noqa: ANN401 - plain values
    return broker_verbs(GatewayQueues(WorkQueueOptions()))[verb].begin(*arguments)


def carry_out(store: Store, verb: str, *arguments: Any) -> Any:  # noqa: ANN401 - plain values
    return store.follow(procedure_of(verb, *arguments))


def note(store: Store, delivery: Delivery, consumer: ConsumerName) -> None:
    carry_out(store, "skmq_assign", QUEUE, consumer, [[delivery.fence, delivery.id, MSGID, ""]])


def push(store: Store, queue: WorkQueue, consumer: ConsumerName) -> Delivery:
    """Claimed and noted, as before a push."""
    [delivery] = queue.claim(1, consumer=consumer)
    note(store, delivery, consumer)
    return delivery


def send_another(store: Store, queue: WorkQueue, message: str) -> None:
    """In place of the one before, whoever has that."""
    for consumer in (FIRST, SECOND):
        queue.reap(consumer, silent_ms=0)
    queue.purge_waiting()
    assert carry_out(store, "skmq_send", QUEUE, MSGID, message, "skmq.queue", b"x") == "stored"


def feedback_procedure(word: str, asker: ConsumerName) -> Procedure[str]:
    return procedure_of("skmq_feedback", word, MSGID, ["", "127.0.0.1", None], RULES, asker)


def feedback(store: Store, word: str, asker: ConsumerName = THIRD) -> str:
    return store.follow(feedback_procedure(word, asker))


def follow_amid(
    store: Store, procedure: Procedure[str], moves: Sequence[tuple[int, Callable[[], object]]]
) -> str:
    """Carry it out, with what others do before its steps of these numbers."""

    def only(step: Step) -> Procedure[Any]:
        return (yield step)

    try:
        step = next(procedure)
        for number in itertools.count():
            for before, move in moves:
                if before == number:
                    move()
            step = procedure.send(store.follow(only(step)))
    except StopIteration as end:
        return str(end.value)
    raise AssertionError("unreachable: steps are counted without an end")


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
    queue.settle(Release(push(store, queue, FIRST)), consumer=FIRST)
    [again] = queue.claim(1, consumer=SECOND)

    assert feedback(store, "ack") == "missed"
    assert queue.counts().leased == 1
    note(store, again, SECOND)
    assert feedback(store, "ack") == "known"
    assert queue.counts().leased == 0
    assert queue.counts().totals["succeeded"] == 1


@pytest.mark.parametrize("word", ["ack", "reject", "error"])
def test_what_the_asking_gateway_holds_by_now_it_settles_itself(
    store: Store, queue: WorkQueue, word: str
) -> None:
    """It asked before it had it. Settled behind its back, it would be pushed after the answer."""
    push(store, queue, SECOND)

    assert feedback(store, word, asker=SECOND) == "missed"
    assert queue.counts().leased == 1
    assert feedback(store, word, asker=THIRD) == "known"
    assert queue.counts().leased == 0


@pytest.mark.parametrize("is_noted", [True, False], ids=["held as noted", "taken again and not noted"])
def test_an_ack_that_meets_its_message_on_the_way_to_the_asking_gateway(
    store: Store,
    queue: WorkQueue,
    is_noted: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The first gateway was killed: its message is released, taken by the second, and noted, at any moment.

    Either the ack takes the message out, and the second gateway never gets it; or the second one has it, and
    the ack is missed. It is neither settled by a gateway that would still push it, nor taken for settled.
    """
    outcomes = set()
    for moments in itertools.combinations_with_replacement(range(MOST_STEPS), 3):
        send_another(store, queue, "m~q{}.{}.{}".format(*moments))
        held, got = push(store, queue, FIRST), list[Delivery]()
        if not is_noted:
            queue.settle(Release(held), consumer=FIRST)
            [held] = queue.claim(1, consumer=FIRST)
        release = partial(queue.settle, Release(held), consumer=FIRST)
        take = partial(lambda got: got.extend(queue.claim(1, consumer=SECOND)), got)
        write_down = partial(lambda got: [note(store, each, SECOND) for each in got], got)

        moves = list(zip(moments, (release, take, write_down), strict=True))
        outcome = follow_amid(store, feedback_procedure("ack", SECOND), moves)

        outcomes.add((outcome, len(got)))
        assert outcomes <= {("known", 0), ("missed", 1), ("missed", 0)}, moments
        assert queue.counts().leased + queue.counts().waiting == (outcome == "missed")
    assert outcomes >= {("known", 0), ("missed", 1)}


def test_an_error_buries_what_another_gateway_holds(store: Store, queue: WorkQueue) -> None:
    push(store, queue, FIRST)

    assert feedback(store, "error") == "known"
    assert queue.counts().dead == 1
    assert feedback(store, "error") == "unknown"


@pytest.mark.parametrize("word", ["ack", "arrived", "reject", "error"])
def test_a_word_on_a_message_that_nobody_knows(store: Store, word: str) -> None:
    assert feedback(store, word) == "unknown"
