"""Dead letters: listed with the reason, revived, or thrown away."""

from __future__ import annotations

import pytest

from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Failure, RetryAt
from mqworker.queues.queue_model import Capability
from tests.conformance.models import AnyQueue
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages

pytestmark = pytest.mark.needs(Capability.DEAD_LETTER)


def bury_all(queue: AnyQueue, reason: str = "gave up") -> list[str]:
    """Claims and buries everything that is ready; the ids, in order."""
    ids: list[str] = []
    while claimed := queue.claim(1_000):
        queue.settle(*(Bury(delivery, reason) for delivery in claimed))
        ids += [delivery.id for delivery in claimed]
    return ids


def test_a_dead_letter_keeps_the_message_the_reason_and_the_evidence(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"\x00body\r\n", task="report", priority=4))
    delivery = queue.claim()[0]
    failure = Failure("ValueError", "nö", "line 1\nline 2")

    queue.settle(Bury(delivery, "no more retries", failure, {"host": "a"}))

    letter = queue.dead_letters()[0]
    assert (letter.id, letter.reason) == (delivery.id, "no more retries")
    assert (letter.error, letter.error_message, letter.traceback) == ("ValueError", "nö", "line 1\nline 2")
    assert letter.evidence == {"host": "a"}
    assert (letter.message.body, letter.message.task, letter.message.priority) == (
        b"\x00body\r\n",
        "report",
        4,
    )
    assert letter.buried_at_ms >= delivery.enqueued_at_ms


def test_the_last_failure_is_counted_in_the_dead_letter(queue: AnyQueue) -> None:
    queue.enqueue(a_message())
    queue.settle(RetryAt(queue.claim()[0], failure=Failure("ValueError")))

    queue.settle(Bury(queue.claim()[0], "no more retries", Failure("ValueError")))

    letter = queue.dead_letters()[0]
    assert (letter.message.deliveries, letter.message.failures) == (2, 2)


def test_dead_letters_are_listed_page_by_page(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(5))
    ids = bury_all(queue)

    listed = [letter.id for start in (0, 2, 4, 6) for letter in queue.dead_letters(start, 2)]

    assert sorted(listed) == sorted(ids)


def test_a_revived_message_is_delivered_as_if_new(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b"again"), a_message(b"other"))
    queue.settle(RetryAt(queue.claim()[0]))
    ids = bury_all(queue)

    revived = queue.revive(ids[1])

    delivery = queue.claim(2)[0]
    assert revived == [ids[1]]
    assert (delivery.body, delivery.attempt, delivery.failures) == (b"again", 1, 0)
    assert [letter.id for letter in queue.dead_letters()] == [ids[0]]


@pytest.mark.needs(Capability.DEADLINE | Capability.PRIORITY | Capability.GUARD)
def test_a_revived_message_loses_its_deadline_and_nothing_else(queue: AnyQueue) -> None:
    queue.enqueue(a_message(b" 1 2 ", task="t", priority=7, deadline=After(AN_HOUR_MS), max_crashes=None))
    ids = bury_all(queue)

    queue.revive(*ids)

    delivery = queue.claim()[0]
    assert (delivery.body, delivery.task, delivery.priority) == (b" 1 2 ", "t", 7)
    assert (delivery.deadline_at_ms, delivery.max_crashes) == (None, None)


def test_only_dead_letters_can_be_revived(queue: AnyQueue) -> None:
    alive = a_message()
    queue.enqueue(alive)

    revived = queue.revive(alive.id, "never-seen")

    assert revived == []
    assert len(queue.claim(9)) == 1


def test_thousands_are_revived_at_once_without_losing_one(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(9_000))
    ids = bury_all(queue)

    revived = queue.revive(*ids)

    assert revived == ids
    assert queue.counts().ready == 9_000
    assert queue.dead_letters() == []


def test_purging_the_dead_leaves_the_living_alone(queue: AnyQueue) -> None:
    queue.enqueue(*some_messages(3))
    bury_all(queue)
    queue.enqueue(a_message(b"alive"))

    thrown_away = queue.purge_dead()

    assert thrown_away == 3
    assert queue.dead_letters() == []
    assert queue.purge_dead() == 0
    assert bodies(queue.claim()) == [b"alive"]
