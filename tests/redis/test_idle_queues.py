"""Idle queues: what nodes still ask of the server about them, and what ends in them all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mqworker.actors.broker import LONGEST_FORGET_MS, ROUND_MS, Broker, broker_of
from mqworker.log import get_logger
from mqworker.model.settlement import Ack
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import a_message
from tests.support.raw_queue import LONG_AGO_MS, RawQueue


@pytest.fixture
def broker(store: Store) -> Broker:
    """The real actor; a test says what time it is."""
    return broker_of(store, WorkQueueOptions(), 1_000_000, get_logger())


def keep_result(queue: WorkQueue, kept_s: int) -> str:
    """Run a message whose result is kept so long; its id."""
    queue.enqueue(a_message())
    (delivery,) = queue.claim(1)
    queue.store.run(queue.calls.settle([Ack(delivery, b"x")], None, kept_s * 1000, 600_000))
    return delivery.id


def scripts_run(raw: RawQueue, act: Callable[[], object]) -> int:
    """How many scripts the server runs meanwhile."""

    def count() -> int:
        return int(raw.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))

    before = count()
    act()
    return count() - before


def turn_for(broker: Broker, seconds: int, from_s: int = 0) -> None:
    for second in range(from_s, from_s + seconds):
        broker.turn(second * 1000)


def test_results_alone_are_no_reason_to_run_a_script_each_second(
    broker: Broker, queue: WorkQueue, raw: RawQueue
) -> None:
    keep_result(queue, 600)
    turn_for(broker, 2)

    scripts = scripts_run(raw, lambda: turn_for(broker, 20, from_s=2))

    looks_at_schedules = 20  # one each second, whatever the number of queues
    assert 0 < scripts - looks_at_schedules <= 3 * (20_000 // LONGEST_FORGET_MS)


def test_results_that_end_soon_are_dropped_in_the_second_in_which_they_end(
    broker: Broker, queue: WorkQueue, raw: RawQueue
) -> None:
    message = keep_result(queue, 1)
    turn_for(broker, 2)
    raw.client.zadd(raw.key("results:ends"), {message: LONG_AGO_MS})  # its second is over

    turn_for(broker, 2, from_s=2)

    assert queue.find(message).state == "absent"


def test_a_short_result_that_comes_after_the_look_is_dropped_at_the_next_one(
    broker: Broker, queue: WorkQueue, raw: RawQueue
) -> None:
    keep_result(queue, 600)
    turn_for(broker, 2)
    message = keep_result(queue, 1)
    raw.client.zadd(raw.key("results:ends"), {message: LONG_AGO_MS})

    turn_for(broker, LONGEST_FORGET_MS // 1000 + 2, from_s=2)

    assert queue.find(message).state == "absent"


def test_more_results_than_one_call_drops_are_dropped_second_by_second(
    broker: Broker, queue: WorkQueue, raw: RawQueue
) -> None:
    keep_result(queue, 1)
    ends = raw.key("results:ends")
    raw.client.zadd(ends, {f"id{number}": LONG_AGO_MS for number in range(12_000)})

    turn_for(broker, 5)

    assert raw.client.zcard(ends) <= 1


def test_delayed_messages_are_looked_at_as_often_as_before(
    broker: Broker, queue: WorkQueue, raw: RawQueue
) -> None:
    keep_result(queue, 600)
    turn_for(broker, 2)
    raw.client.zadd(raw.key("delayed"), {"nobody": LONG_AGO_MS * 100})  # whoever put it there called nobody

    scripts = scripts_run(raw, lambda: turn_for(broker, 4, from_s=2))

    assert scripts >= 3 * 3
    assert ROUND_MS == 1_000
