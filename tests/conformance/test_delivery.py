"""What every queue model does: messages go in, come out in order, once, and end when they are settled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from mqworker.model.settlement import Ack
from tests.conformance.models import AnyQueue
from tests.support.messages import a_message, bodies, some_messages


def test_messages_come_out_in_the_order_in_which_they_went_in(queue: AnyQueue) -> None:
    for message in some_messages(5):
        queue.enqueue(message)

    claimed = [queue.claim()[0].body for _ in range(5)]

    assert claimed == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_keeps_its_order(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(300))

    claimed = queue.claim(300)

    assert bodies(claimed) == [b"%d" % position for position in range(300)]


def test_more_than_a_batch_at_once_is_stored_in_order(queue: AnyQueue) -> None:
    stored = queue.enqueue(*some_messages(2_500))

    claimed = [body for _ in range(3) for body in bodies(queue.claim(1_000))]

    assert all(enqueued.is_new for enqueued in stored)
    assert claimed == [b"%d" % position for position in range(2_500)]


def test_enqueue_says_which_ids_it_stored(queue: AnyQueue) -> None:
    messages = some_messages(3)

    stored = queue.enqueue(*messages)

    assert [enqueued.id for enqueued in stored] == [message.id for message in messages]


def test_a_delivery_shows_the_message_and_a_first_attempt(queue: AnyQueue) -> None:
    message = a_message(b"what to do", task="report")
    queue.enqueue(message)

    delivery = queue.claim()[0]

    assert (delivery.id, delivery.task, delivery.body) == (message.id, "report", b"what to do")
    assert (delivery.attempt, delivery.failures, delivery.crashes) == (1, 0, 0)


def test_claim_gives_no_more_than_asked_for_and_no_more_than_there_is(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(5))

    counts = [len(queue.claim(3)), len(queue.claim(3)), len(queue.claim(3))]

    assert counts == [3, 2, 0]


def test_an_empty_queue_gives_nothing(queue: AnyQueue) -> None:
    assert queue.claim() == []


def test_nothing_is_enqueued_by_enqueueing_nothing(queue: AnyQueue) -> None:
    assert queue.enqueue() == []
    assert queue.claim() == []


def test_no_message_is_claimed_twice_however_many_claim_at_once(queue: AnyQueue) -> None:
    messages = some_messages(1_000)
    queue.enqueue(*messages)

    def claim_until_empty(_: int) -> list[str]:
        claimed: list[str] = []
        while some := queue.claim(7):
            claimed += [delivery.id for delivery in some]
        return claimed

    with ThreadPoolExecutor(8) as threads:
        shares = list(threads.map(claim_until_empty, range(8)))

    assert sorted(item for share in shares for item in share) == sorted(message.id for message in messages)


def test_fences_grow_with_every_delivery(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(6))

    fences = [delivery.fence for count in (1, 3, 2) for delivery in queue.claim(count)]

    assert fences == sorted(set(fences))


def test_an_ack_ends_a_message_for_good(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(2))
    first, second = queue.claim(2)

    lost = queue.settle(Ack(first), Ack(second))

    assert lost == []
    assert queue.claim() == []
    assert queue.reclaim() == (0, 0)


def test_settling_nothing_is_fine(queue: AnyQueue) -> None:
    assert queue.settle() == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"a\x00b\r\nc\r\n\r\n",
        bytes(range(256)),
        b" leading and trailing ",
        b"-",
        b"\xff" * 1_048_576,
    ],
    ids=["empty", "nul", "crlf", "every-byte", "spaces", "a-hole", "1-mib"],
)
def test_a_body_comes_out_as_it_went_in(queue: AnyQueue, body: bytes) -> None:
    queue.enqueue(a_message(body))

    delivery = queue.claim()[0]

    assert delivery.body == body
