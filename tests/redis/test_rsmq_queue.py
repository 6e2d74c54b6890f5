"""An RSMQ queue as a queue of tasks, beyond what tests/conformance asks of every model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis

from mqworker.errors import InvalidArgument, UnknownQueue
from mqworker.model.instant import After
from mqworker.model.settlement import Ack, Bury, Failure, Release, RetryAt
from mqworker.queues.rsmq.client import RsmqClient
from mqworker.queues.rsmq.queue import RsmqQueue
from mqworker.store.link.connection import Connection
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.messages import AN_HOUR_MS, a_message, bodies, some_messages
from tests.support.real_server import RealServer

Q = "tasks"
LEASES, HELD = f"mqw:x:{{rsmq:{Q}}}:leases", f"mqw:x:{{rsmq:{Q}}}:held"


@pytest.fixture
def queue(connection: Connection) -> RsmqQueue:
    return RsmqQueue(Q, Store(connection), vt=60)


@pytest.fixture
def rsmq(queue: RsmqQueue) -> RsmqClient:
    return RsmqClient(queue.store)


@pytest.fixture
def raw(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as client:
        yield client


def now_ms(raw: redis.Redis) -> int:
    seconds, microseconds = raw.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def the_only_id(raw: redis.Redis) -> str:
    (found,) = raw.zrange(f"rsmq:{Q}", 0, -1)
    assert isinstance(found, bytes)
    return found.decode()


def test_the_queue_is_made_when_it_is_first_used_and_left_as_it_is_otherwise(
    queue: RsmqQueue, rsmq: RsmqClient
) -> None:
    queue.claim()
    RsmqQueue(Q, queue.store, vt=5).claim()

    assert rsmq.get_queue_attributes(Q).vt == 60


def test_a_late_ack_is_refused_even_if_nobody_received_the_message_yet(
    queue: RsmqQueue, raw: redis.Redis
) -> None:
    queue.enqueue(a_message())
    late = Ack(queue.claim(lease_ms=1)[0])
    wait_until(lambda: RsmqClient(queue.store).get_queue_attributes(Q).hiddenmsgs == 0, "the lease was over")

    lost = queue.settle(late)

    assert lost == [late]
    assert raw.zcard(f"rsmq:{Q}") == 1


def test_a_message_received_by_another_client_is_lost_to_us(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.enqueue(a_message())
    claimed = queue.claim()[0]
    rsmq.change_message_visibility(Q, the_only_id(raw), vt=0)
    rsmq.receive_message(Q)

    assert queue.extend(claimed) == [claimed]
    assert queue.settle(Release(claimed)) == [Release(claimed)]


def test_a_message_deleted_by_another_client_is_lost_to_us(queue: RsmqQueue, rsmq: RsmqClient) -> None:
    queue.enqueue(a_message())
    claimed = queue.claim(lease_ms=1)[0]
    rsmq.delete_queue(Q)

    assert queue.settle(Ack(claimed)) == [Ack(claimed)]
    assert queue.reclaim() == (0, 0)


def test_a_queue_that_another_client_deleted_is_made_again_for_a_new_message(
    queue: RsmqQueue, rsmq: RsmqClient
) -> None:
    queue.enqueue(a_message(b"before"))
    rsmq.delete_queue(Q)
    assert queue.claim() == []

    queue.enqueue(a_message(b"after"))

    assert bodies(queue.claim()) == [b"after"]


def test_a_queue_that_another_client_left_half_made_loses_nothing_that_we_hold_and_is_completed(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.enqueue(*some_messages(3))
    done, returned = queue.claim(2)
    raw.hdel(f"rsmq:{Q}:Q", "vt", "maxsize")

    kept = queue.extend(done, returned)
    lost = queue.settle(Ack(done), Release(returned))
    with pytest.raises(UnknownQueue):
        rsmq.receive_message(Q)
    claimed = queue.claim(5)

    assert (kept, lost, len(claimed)) == ([], [], 2)
    assert rsmq.get_queue_attributes(Q).vt == 60


def test_after_the_clock_was_set_back_leases_hold_and_messages_wait_until_they_are_shown(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.enqueue(*some_messages(2))
    (held,) = queue.claim()
    for key in (f"rsmq:{Q}", LEASES):  # everything was written an hour from now
        for member, at_ms in raw.zrange(key, 0, -1, withscores=True):
            raw.zadd(key, {member: at_ms + AN_HOUR_MS})

    lost = queue.settle(Ack(held))
    waiting = the_only_id(raw)
    before = queue.claim()
    rsmq.change_message_visibility(Q, waiting, vt=0)

    assert (lost, before) == ([], [])
    assert len(queue.claim()) == 1


def test_a_lease_that_another_client_prolonged_is_not_reclaimed(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.enqueue(*some_messages(1))
    claimed = queue.claim(lease_ms=30)[0]
    rsmq.change_message_visibility(Q, the_only_id(raw), vt=60)
    first_end_ms = raw.zscore(LEASES, claimed.fence) or 0
    wait_until(lambda: now_ms(raw) > first_end_ms, "the lease would have ended")

    assert queue.reclaim() == (0, 0)
    assert queue.settle(Ack(claimed)) == []


def test_a_retry_hides_the_message_and_counts_its_delivery(queue: RsmqQueue, rsmq: RsmqClient) -> None:
    queue.enqueue(*some_messages(2))
    first, second = queue.claim(2)

    queue.settle(RetryAt(first, After(AN_HOUR_MS)), RetryAt(second))

    again = queue.claim(2)
    assert bodies(again) == [b"1"]
    assert (again[0].attempt, again[0].failures) == (2, 1)
    assert rsmq.get_queue_attributes(Q).hiddenmsgs == 2


def test_a_buried_message_rests_where_no_other_client_meets_it(queue: RsmqQueue, rsmq: RsmqClient) -> None:
    message = a_message(b"\x92\x91\x01\x80", task="count")
    queue.enqueue(message)
    claimed = queue.claim()[0]

    queue.settle(Bury(claimed, "failed", Failure("ValueError", "no")))

    (burial,) = queue.burials()
    assert json.loads(burial.message) == {"id": message.id, "task": "count", "args": [1], "kwargs": {}}
    assert (burial.reason, burial.details["error"]) == ("failed", "ValueError")
    assert rsmq.get_queue_attributes(Q).msgs == 0
    assert rsmq.list_queues() == [Q]


def test_a_dead_letter_is_put_back_in_line(queue: RsmqQueue, rsmq: RsmqClient) -> None:
    queue.enqueue(a_message(b"x"))
    queue.settle(Bury(queue.claim()[0], "why"))
    (burial,) = queue.burials()

    revived = [queue.revive(burial.id, "unknown"), queue.revive(burial.id)]

    assert revived == [[True, False], [False]]
    assert queue.burials() == []
    assert rsmq.receive_message(Q).id == burial.id


def test_a_message_is_found_wherever_it_is(queue: RsmqQueue) -> None:
    visible, delayed = queue.send(a_message(), a_message(due=After(AN_HOUR_MS)))
    states = [queue.find(visible), queue.find(delayed)]
    claimed = queue.claim()[0]
    states.append(queue.find(visible))
    queue.settle(Bury(claimed, "why"))

    assert claimed.id == visible
    assert [*states, queue.find(visible), queue.find("x")] == ["visible", "delayed", "hidden", "dead", "gone"]


def test_what_is_no_task_is_buried_and_the_others_are_claimed(queue: RsmqQueue, rsmq: RsmqClient) -> None:
    rsmq.create_queue(Q)
    rsmq.send_messages(Q, ["{}", '{"task": "a"}', b"\xff", '{"task": "b", "args": [NaN]}'])

    claimed = queue.claim(10)

    assert [delivery.task for delivery in claimed] == ["a"]
    assert [burial.reason for burial in queue.burials()] == ["undecodable"] * 3
    assert queue.settle(*map(Ack, claimed)) == []


def test_a_settled_queue_leaves_no_lease_behind(queue: RsmqQueue, raw: redis.Redis) -> None:
    queue.enqueue(*some_messages(20))
    queue.settle(*map(Ack, queue.claim(20)))

    assert raw.exists(f"rsmq:{Q}", LEASES) == 0
    assert raw.hgetall(HELD) == {b"fence": b"20"}


@pytest.mark.parametrize("wish", [{"priority": 1}, {"deadline": After(1)}])
def test_what_the_layout_cannot_hold_is_refused(queue: RsmqQueue, wish: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match="RSMQ"):
        queue.enqueue(a_message(**wish))


def half_made(raw: redis.Redis) -> None:
    """As a foreign client leaves it that died, or failed, between two writes."""
    raw.hset(f"rsmq:{Q}:Q", "vt", "30")


def test_a_queue_that_a_foreign_client_left_half_made_is_completed_by_whoever_makes_it(
    rsmq: RsmqClient, raw: redis.Redis
) -> None:
    half_made(raw)

    rsmq.create_queue(Q, vt=60, delay=0, maxsize=65536)

    attributes = rsmq.get_queue_attributes(Q)
    assert (attributes.vt, attributes.delay, attributes.maxsize) == (30, 0, 65536)
    assert raw.sismember("rsmq:QUEUES", Q)


def test_a_half_made_queue_is_completed_by_whoever_claims_from_it_or_sends_to_it(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.claim()
    raw.hdel(f"rsmq:{Q}:Q", "delay", "maxsize")

    assert queue.claim() == []
    rsmq.send_message(Q, "hello")

    assert rsmq.get_queue_attributes(Q).msgs == 1


def test_who_only_polls_does_not_make_a_deleted_queue_anew(
    queue: RsmqQueue, rsmq: RsmqClient, raw: redis.Redis
) -> None:
    queue.claim()
    rsmq.delete_queue(Q)

    assert [queue.claim() for _ in range(3)] == [[], [], []]
    assert (rsmq.list_queues(), raw.exists(f"rsmq:{Q}:Q")) == ([], 0)

    queue.enqueue(a_message())
    assert len(queue.claim()) == 1
