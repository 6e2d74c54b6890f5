"""What becomes of messages: claims, errors, deadlines, deaths, in both guarantees."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.consumer import BatchReport
from mqworker.queues.gq.rules import GqLiveness, GqMessage, GqResult, GqRetention, GqStatus, GqView
from tests.gq.databases import Database

HOUR_MS = 3_600_000
BOTH = ("at_most_once", "at_least_once")
LIVENESS = GqLiveness()


def push(client: GqClient, count: int = 1, *, deadline: float | None = None) -> None:
    producer = client.producer(push_batch=count, linger_ms=None)
    for number in range(1, count + 1):
        producer.push(b"%d" % number, deadline)


def push_with_an_hour(client: GqClient) -> None:
    client.producer().push(b"1", timedelta(hours=1))


def status(client: GqClient, id_: int = 1) -> GqStatus:
    record = client.find(id_)
    assert record is not None
    return record.status


def ids(messages: list[GqMessage]) -> list[int]:
    return [message.id for message in messages]


def raises(_payload: bytes) -> None:
    raise RuntimeError("no luck")


def succeeds(_payload: bytes) -> None:
    pass


def test_claims_from_the_same_stale_view_are_disjoint_and_complete(client: GqClient) -> None:
    """Q07."""
    push(client, 10)
    one, other = client.consumer(), client.consumer()
    one.register()
    other.register()
    stale = GqView(0, 1)
    chosen_by_one, chosen_by_other = one.select(stale), other.select(stale)

    half = one.claim(chosen_by_one[:5])
    rest = other.claim(chosen_by_other)
    nothing = one.claim(chosen_by_one[5:])

    assert chosen_by_one == chosen_by_other == list(range(1, 11))
    assert (ids(half), ids(rest), nothing) == ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [])
    assert {client.find(id_).consumer for id_ in ids(half)} == {one.uuid}
    assert {client.find(id_).consumer for id_ in ids(rest)} == {other.uuid}


def test_claims_from_a_stale_view_made_at_the_same_moment_are_disjoint_and_complete(
    database: Database, client: GqClient
) -> None:
    """Q07, at once instead of one after the other."""
    push(client, 200)
    consumers = [database.another_client().consumer(pop_batch=200) for _ in range(4)]
    for consumer in consumers:
        consumer.register()
    chosen = [consumer.select(GqView(0, 1)) for consumer in consumers]
    start = threading.Barrier(len(consumers))

    def claim(number: int) -> list[int]:
        start.wait()
        return ids(consumers[number].claim(chosen[number]))

    with ThreadPoolExecutor(len(consumers)) as threads:
        claimed = list(threads.map(claim, range(len(consumers))))

    assert sorted(id_ for each in claimed for id_ in each) == list(range(1, 201))
    for consumer, own in zip(consumers, claimed, strict=True):
        assert all(client.find(id_).consumer == consumer.uuid for id_ in own)


@pytest.mark.parametrize("guarantee", BOTH)
def test_a_callback_that_returns_makes_the_message_processed(client: GqClient, guarantee: str) -> None:
    """Q09."""
    push(client)
    consumer = client.consumer(succeeds, guarantee=guarantee)

    report = consumer.run_once()

    record = client.find(1)
    assert report == BatchReport(processed=(1,))
    assert (record.status, record.consumer) == (GqStatus.PROCESSED, consumer.uuid)


@pytest.mark.parametrize("guarantee", BOTH)
def test_success_counts_even_if_the_deadline_passed_meanwhile(
    database: Database, client: GqClient, guarantee: str
) -> None:
    """Q09."""
    push_with_an_hour(client)
    consumer = client.consumer(lambda _payload: database.age(1, 2 * HOUR_MS), guarantee=guarantee)

    report = consumer.run_once()

    assert report == BatchReport(processed=(1,))
    assert status(client) is GqStatus.PROCESSED


def test_success_counts_even_if_another_saw_the_deadline_pass(database: Database, client: GqClient) -> None:
    """Q09, at most once: failed at the deadline, until the one that had it says otherwise."""
    push_with_an_hour(client)
    consumer, other = (client.consumer(guarantee="at_most_once") for _ in range(2))
    batch = consumer.pop()
    database.age(1, 2 * HOUR_MS)
    other.pop()
    before = client.find(1)

    lost = consumer.settle([GqResult(batch[0], is_ok=True)])

    assert (before.status, before.reason) == (GqStatus.FAILED, "deadline")
    assert (lost, status(client)) == ([], GqStatus.PROCESSED)
    assert client.counts() == dict.fromkeys(GqStatus, 0) | {GqStatus.PROCESSED: 1}


@pytest.mark.parametrize("guarantee", BOTH)
def test_an_error_before_the_deadline_queues_the_message_at_its_old_place(
    client: GqClient, guarantee: str
) -> None:
    """Q10."""
    push(client, 3)
    consumer = client.consumer(raises, pop_batch=1, guarantee=guarantee)

    report = consumer.run_once()

    assert report == BatchReport(errors=(1,))
    assert status(client) is GqStatus.QUEUED
    again = client.consumer(pop_batch=1, guarantee=guarantee)
    consumer.stop()
    assert [(message.id, message.attempt) for message in again.pop()] == [(1, 2)]


def test_an_error_after_the_deadline_fails_the_message_at_most_once(
    database: Database, client: GqClient
) -> None:
    """Q11."""
    push_with_an_hour(client)

    def too_late(_payload: bytes) -> None:
        database.age(1, 2 * HOUR_MS)
        raise RuntimeError

    consumer = client.consumer(too_late, guarantee="at_most_once")
    report = consumer.run_once()

    assert report == BatchReport(errors=(1,))
    assert status(client) is GqStatus.FAILED
    assert consumer.pop() == []


@pytest.mark.parametrize(("fail_expired", "expected"), [(False, GqStatus.QUEUED), (True, GqStatus.FAILED)])
def test_an_error_after_the_deadline_at_least_once_is_tried_again_unless_told_otherwise(
    database: Database, client: GqClient, *, fail_expired: bool, expected: GqStatus
) -> None:
    push_with_an_hour(client)
    consumer = client.consumer(fail_expired=fail_expired)
    batch = consumer.pop()
    database.age(1, 2 * HOUR_MS)

    consumer.settle([GqResult(batch[0], is_ok=False)])

    assert status(client) is expected


def test_a_deadline_that_passes_in_the_queue_fails_at_most_once(client: GqClient) -> None:
    """Q06."""
    push(client, 3, deadline=1.0)
    push(client)

    batch = client.consumer(guarantee="at_most_once").pop()

    assert ids(batch) == [4]
    assert [status(client, id_) for id_ in (1, 2, 3)] == [GqStatus.FAILED] * 3
    assert client.find(1).reason == "deadline"


def test_a_deadline_that_passes_in_the_queue_is_delivered_at_least_once_and_left_alone_for_a_while(
    client: GqClient,
) -> None:
    push(client, deadline=1.0)
    one, other = client.consumer(), client.consumer()
    other.register()

    batch = one.pop() + other.pop()

    assert ids(batch) == [1]
    assert one.select(GqView(0, 1)) == []


def test_a_deadline_that_passes_in_work_fails_at_most_once(database: Database, client: GqClient) -> None:
    push_with_an_hour(client)
    one, other = (client.consumer(raises, guarantee="at_most_once") for _ in range(2))
    batch = one.pop()
    database.age(1, 2 * HOUR_MS)

    other.heartbeat()

    assert status(client) is GqStatus.FAILED
    assert one.settle([GqResult(batch[0], is_ok=False)]) == []
    assert (status(client), other.pop()) == (GqStatus.FAILED, [])


def test_a_deadline_that_passes_in_work_lets_anybody_claim_at_least_once(
    database: Database, client: GqClient
) -> None:
    """Q13: and the late result of the first is lost."""
    push_with_an_hour(client)
    first, second, third = (client.consumer() for _ in range(3))
    for consumer in (first, second, third):
        consumer.register()
    taken = second.pop()  # id 1 of 3 is the second's
    database.age(1, 2 * HOUR_MS)

    reclaimed = third.pop()
    leased = first.pop()
    lost = second.settle([GqResult(taken[0], is_ok=True)])

    assert (ids(taken), ids(reclaimed), leased, lost) == ([1], [1], [], [1])
    record = client.find(1)
    assert (record.status, record.consumer, record.attempts) == (GqStatus.CONSUMED, third.uuid, 2)
    assert third.settle([GqResult(reclaimed[0], is_ok=True)]) == []
    assert second.settle([GqResult(taken[0], is_ok=False)]) == [1]
    assert status(client) is GqStatus.PROCESSED


def test_a_reclaimed_message_is_left_alone_as_long_as_its_deadline_was_wide(
    database: Database, client: GqClient
) -> None:
    push_with_an_hour(client)
    first, second = client.consumer(), client.consumer()
    first.register()
    second.register()
    second.pop()
    database.age(1, 2 * HOUR_MS)
    deadline = client.find(1).deadline_at_ms
    first.pop()

    database.age(1, HOUR_MS - 60_000)
    too_early = second.pop()
    database.age(1, 60_000)
    again = second.pop()

    assert (too_early, ids(again)) == ([], [1])
    assert client.find(1).deadline_at_ms == deadline - HOUR_MS, "only the test moved the deadline"


def test_the_same_consumer_loses_an_earlier_delivery_too(database: Database, client: GqClient) -> None:
    push_with_an_hour(client)
    consumer = client.consumer()
    earlier = consumer.pop()
    database.age(1, 2 * HOUR_MS)
    later = consumer.pop()

    assert consumer.settle([GqResult(earlier[0], is_ok=True)]) == [1]
    assert consumer.settle([GqResult(later[0], is_ok=True)]) == []


@pytest.mark.parametrize(
    ("guarantee", "reclaim_dead", "expected"),
    [
        ("at_most_once", False, GqStatus.CONSUMED),
        ("at_least_once", False, GqStatus.CONSUMED),
        ("at_least_once", True, GqStatus.QUEUED),
    ],
)
def test_what_a_dead_consumer_held(
    database: Database, client: GqClient, guarantee: str, *, reclaim_dead: bool, expected: GqStatus
) -> None:
    push(client, 2)
    dead = client.consumer(guarantee=guarantee)
    other = client.consumer(guarantee=guarantee, reclaim_dead=reclaim_dead)
    batch = dead.pop()
    database.silence(dead.uuid, LIVENESS.dead_after_ms)

    other.heartbeat()

    assert [status(client, id_) for id_ in ids(batch)] == [expected, expected]
    late = dead.settle([GqResult(batch[0], is_ok=True), GqResult(batch[1], is_ok=False)])
    assert late == ([1, 2] if reclaim_dead else [])
    assert ids(other.pop()) == ([1, 2] if reclaim_dead else [2])


def test_retries_are_limited_when_asked_for(client: GqClient) -> None:
    push(client)
    consumer = client.consumer(raises, max_retries=2)

    seen = []
    for _ in range(3):
        consumer.run_once()
        seen.append(status(client))

    assert seen == [GqStatus.QUEUED, GqStatus.QUEUED, GqStatus.FAILED]
    assert client.find(1).reason == "retries"
    assert consumer.pop() == []


def test_a_message_that_kills_its_consumers_fails_when_its_retries_are_used_up(
    database: Database, client: GqClient
) -> None:
    push(client)
    for _ in range(2):
        victim = client.consumer(max_retries=1)
        assert ids(victim.pop()) == [1]
        database.silence(victim.uuid, LIVENESS.dead_after_ms)
        finder = client.consumer(max_retries=1, reclaim_dead=True)
        finder.heartbeat()
        finder.stop()

    assert status(client) is GqStatus.FAILED


def test_an_overdue_message_without_retries_left_fails_instead_of_being_claimed(
    database: Database, client: GqClient
) -> None:
    push_with_an_hour(client)
    consumer = client.consumer(max_retries=0)
    consumer.pop()
    database.age(1, 2 * HOUR_MS)

    assert consumer.pop() == []
    assert status(client) is GqStatus.FAILED


@pytest.mark.parametrize("work_conserving", [False, True])
def test_only_who_conserves_work_takes_from_others_and_only_after_a_heartbeat(
    database: Database, client: GqClient, *, work_conserving: bool
) -> None:
    idle, busy = client.consumer(), client.consumer(work_conserving=work_conserving)
    idle.register()
    busy.register()
    push(client, 2)  # id 2 is the idle one's
    own = busy.pop()

    too_early = busy.pop()
    database.age(2, LIVENESS.interval_ms)
    later = busy.pop()

    assert (ids(own), too_early) == ([1], [])
    assert ids(later) == ([2] if work_conserving else [])


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (GqRetention(), [1, 2, 3, 4, 5, 6]),
        (GqRetention(count=2), [5, 6]),
        (GqRetention(ms=HOUR_MS), [4, 5, 6]),
    ],
)
def test_ended_messages_are_kept_within_bounds(
    database: Database, client: GqClient, retention: GqRetention, kept: list[int]
) -> None:
    push(client, 6)
    consumer = client.consumer(succeeds, pop_batch=1, retain_done=retention)
    for _ in range(6):
        consumer.run_once()
    for id_ in (1, 2, 3):
        if client.find(id_):
            database.age(id_, 2 * HOUR_MS)

    consumer.heartbeat()

    assert [id_ for id_ in range(1, 7) if client.find(id_)] == kept
    assert client.counts()[GqStatus.PROCESSED] == len(kept)


def test_after_the_clock_was_set_back_nothing_is_lost_and_nothing_given_up_early(
    database: Database, client: GqClient
) -> None:
    push_with_an_hour(client)
    push(client)
    one, other = client.consumer(reclaim_dead=True), client.consumer(reclaim_dead=True)
    (held, *_), _ = one.pop(), other.register()
    for id_ in (1, 2):
        database.age(id_, -HOUR_MS)  # everything was written an hour from now
    for consumer in (one, other):
        database.silence(consumer.uuid, -HOUR_MS)

    other.heartbeat()
    stolen = other.pop()
    lost = one.settle([GqResult(held, is_ok=True)])

    assert (ids([held]), stolen, lost) == ([1], [], [])
    assert status(client) is GqStatus.PROCESSED
    assert len(client.consumers()) == 2
