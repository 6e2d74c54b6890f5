"""A gq queue as a queue of tasks, beyond what tests/conformance asks of every model."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument, StoreUnavailable
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.queue import GqQueue
from mqworker.queues.gq.rules import GqLiveness, GqStatus
from tests.gq.databases import Database
from tests.gq.deaf_store import DeafStore
from tests.gq.forgetful_store import ForgetfulStore
from tests.support.messages import a_message, bodies, some_messages


@pytest.fixture
def queue(client: GqClient) -> GqQueue:
    return GqQueue(client.store)


def test_settlements_become_the_statuses_of_gq(client: GqClient, queue: GqQueue) -> None:
    queue.enqueue(*some_messages(5))
    done, retried, released, crashed, buried = queue.claim(5)

    lost = queue.settle(
        Ack(done), RetryAt(retried), Release(released), Crash(crashed), Bury(buried, "hopeless")
    )

    assert lost == []
    statuses = [client.find(id_).status for id_ in range(1, 6)]
    assert statuses == [GqStatus.PROCESSED, *[GqStatus.QUEUED] * 3, GqStatus.FAILED]
    assert bodies(queue.claim(5)) == [b"1", b"2", b"3"]


def test_a_delivery_is_settled_once(queue: GqQueue) -> None:
    queue.enqueue(a_message())
    [delivery] = queue.claim()
    queue.settle(Ack(delivery))

    again = Ack(delivery)

    assert queue.settle(again) == [again]
    assert queue.extend(delivery) == [delivery]
    with pytest.raises(InvalidArgument, match="twice"):
        queue.settle(again, again)


def test_what_a_dead_consumer_claimed_is_reclaimed_and_its_ack_refused(
    database: Database, client: GqClient, queue: GqQueue
) -> None:
    queue.enqueue(a_message(b"x"))
    [delivery] = queue.claim()
    other = GqQueue(client.store)
    database.silence(client.consumers()[0].uuid, GqLiveness().dead_after_ms)

    other.reclaim()
    [again] = other.claim()

    assert (again.id, again.attempt) == (delivery.id, 2)
    assert queue.settle(Ack(delivery)) == [Ack(delivery)]
    assert other.settle(Ack(again)) == []


def test_a_consumer_that_was_given_up_claims_under_a_new_name(
    database: Database, client: GqClient, queue: GqQueue
) -> None:
    queue.claim()
    [old] = client.consumers()
    database.silence(old.uuid, GqLiveness().dead_after_ms)
    queue.enqueue(a_message(b"x"))

    claimed = queue.claim()
    queue.reclaim()
    [new] = client.consumers()
    queue.leave()

    assert bodies(claimed) == [b"x"]
    assert new.uuid != old.uuid
    assert client.consumers() == []


def test_what_is_no_task_fails_and_does_not_come_back(client: GqClient, queue: GqQueue) -> None:
    client.producer().push(b"\xff just bytes")
    client.producer().push(b"-bad id\nx")
    queue.enqueue(a_message(b"a task"))

    assert bodies(queue.claim(10)) == [b"a task"]
    assert [client.find(id_).status for id_ in (1, 2)] == [GqStatus.FAILED, GqStatus.FAILED]


def test_a_claim_whose_answer_was_lost_is_answered_by_the_next(client: GqClient) -> None:
    deaf = DeafStore(client.store)
    queue = GqQueue(deaf)
    queue.enqueue(*some_messages(5))
    deaf.deaf_to = ["pop"]

    with pytest.raises(StoreUnavailable):
        queue.claim(3)
    claimed = [bodies(queue.claim(count)) for count in (1, 4, 4)]

    assert claimed == [[b"0"], [b"1", b"2"], [b"3", b"4"]]


def test_what_gq_cannot_do_is_refused(queue: GqQueue) -> None:
    with pytest.raises(InvalidArgument, match="priority"):
        queue.enqueue(a_message(), a_message(priority=3))

    assert queue.claim() == []


def test_a_number_that_a_database_gives_out_again_is_not_taken_for_the_delivery_that_still_runs(
    client: GqClient, queue: GqQueue
) -> None:
    """A database that lost everything counts from 1 again, while the old message 1 is still running."""
    forgetful = ForgetfulStore(client.store)
    queue = GqQueue(forgetful)
    queue.enqueue(*some_messages(2))
    [old] = queue.claim(1)
    forgetful.number_by_number = {2: 1}

    claimed = queue.claim(1)

    assert [each.fence for each in claimed if each.fence == old.fence] == []
    assert queue.settle(Ack(old)) == []
    assert client.find(2).status is GqStatus.QUEUED


def test_a_message_with_a_number_that_no_fence_has_room_for_fails(client: GqClient) -> None:
    forgetful = ForgetfulStore(client.store)
    queue = GqQueue(forgetful)
    queue.enqueue(a_message())
    forgetful.number_by_number = {1: 2**53}

    assert queue.claim() == []
    assert queue.extend() == []
