"""Keys that are closed, circuit breakers, and rates by weight, on a real server."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.settlement import Ack, Failure, Release, RetryAt
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import a_message, bodies
from tests.support.raw_queue import RawQueue

ANN, BEN = "t:ann<=2", "t:ben<=2"
BREAKER = "t:ann!2/60000/100"


def _taken(queue: WorkQueue, count: int = 100) -> list[Delivery]:
    admitted, next_ms = queue.admit(count)
    if not admitted and 0 <= next_ms <= 2:  # limits that ran out of room have their turn a millisecond later
        _wait_ms(3)
        queue.admit(count)
    return queue.claim(count, consumer="north")


def _wait_ms(ms: int) -> None:
    time.sleep(ms / 1000)  # the server's clock cannot be set here


def test_nothing_of_a_closed_key_starts_and_all_others_do(store: Store, queue: WorkQueue) -> None:
    queue.enqueue(a_message(b"ann", limits=ANN), a_message(b"ben", limits=BEN))

    store.run(queue.calls.close(["t:ann"], 60_000))

    assert bodies(_taken(queue)) == [b"ben"]


def test_what_was_let_in_before_it_was_closed_goes_back_to_the_front(store: Store, queue: WorkQueue) -> None:
    queue.enqueue(a_message(b"1", limits=ANN), a_message(b"2", limits=ANN), a_message(b"3", limits=ANN))
    queue.admit(1)
    store.run(queue.calls.close(["t:ann"], 50))

    assert queue.claim(1, consumer="north") == []
    _wait_ms(60)
    assert bodies(_taken(queue)) == [b"1", b"2"]


def test_a_closed_key_opens_by_itself_and_by_hand(store: Store, queue: WorkQueue) -> None:
    queue.enqueue(*(a_message(name, limits=limits) for name, limits in ((b"ann", ANN), (b"ben", BEN))))
    store.run(queue.calls.close(["t:ann"], 60_000))
    store.run(queue.calls.close(["t:ben"], 50))
    assert _taken(queue) == []

    _, next_ms = queue.admit(10)
    assert 0 <= next_ms <= 60
    store.run(queue.calls.close(["t:ann"], 0))
    assert bodies(_taken(queue)) == [b"ann"]
    _wait_ms(60)
    assert bodies(_taken(queue)) == [b"ben"]


def test_a_shorter_closing_does_not_shorten_a_longer_one(store: Store, queue: WorkQueue) -> None:
    assert store.run(queue.calls.close(["t:ann"], 60_000)) == 1
    assert store.run(queue.calls.close(["t:ann"], 1)) == 0


def test_closing_holds_for_rates_and_is_told_as_an_event(
    store: Store, queue: WorkQueue, raw: RawQueue
) -> None:
    queue.enqueue(a_message(limits="t:ann=100/1000/100"))

    store.run(queue.calls.close(["t:ann"], 60_000, task="t", why="HTTP 429"))

    assert _taken(queue) == []
    told = raw.client.xrevrange(raw.key("events"), count=1)[0][1][b"j"]
    assert b'"event":"closed"' in told
    assert b"t:ann: HTTP 429" in told


class TestBreaker:
    """After two failures within a minute the key is closed for 100 ms; then one may try."""

    def _fail(self, queue: WorkQueue, *deliveries: Delivery) -> None:
        queue.settle(*(RetryAt(each, After(0), Failure("X")) for each in deliveries), consumer="north")

    def _tripped(self, queue: WorkQueue) -> None:
        queue.enqueue(*(a_message(b"%d" % number, limits=BREAKER) for number in range(6)))
        first = _taken(queue, 2)
        self._fail(queue, *first)
        assert _taken(queue) == []

    def test_so_many_failures_close_the_key(self, queue: WorkQueue, raw: RawQueue) -> None:
        self._tripped(queue)

        told = [fields.get(b"j", b"") for _, fields in raw.client.xrange(raw.key("events"))]
        assert sum(b'"event":"closed"' in each for each in told) == 1
        queue.enqueue(a_message(b"other", limits="t:ben!2/60000/100"))
        assert bodies(_taken(queue)) == [b"other"]

    def test_one_tries_and_its_success_opens_for_all(self, queue: WorkQueue) -> None:
        self._tripped(queue)
        _wait_ms(110)

        tried = _taken(queue)
        assert bodies(tried) == [b"2"]
        assert _taken(queue) == []
        queue.settle(Ack(tried[0]), consumer="north")

        assert len(_taken(queue)) == 5

    def test_its_failure_closes_again_at_once(self, queue: WorkQueue) -> None:
        self._tripped(queue)
        _wait_ms(110)
        self._fail(queue, *_taken(queue))

        assert _taken(queue) == []
        _wait_ms(110)
        assert len(_taken(queue)) == 1

    @pytest.mark.parametrize("how", ["released", "reaped", "cancelled"])
    def test_one_that_neither_succeeds_nor_fails_leaves_the_try_to_the_next(
        self, queue: WorkQueue, how: str
    ) -> None:
        self._tripped(queue)
        _wait_ms(110)
        tried = _taken(queue)
        if how == "released":
            queue.settle(Release(tried[0]), consumer="north")
        elif how == "reaped":
            queue.reap("north", silent_ms=0)
        else:
            queue.store.run(queue.calls.request_cancel(tried[0].id))
            queue.settle(Release(tried[0]), consumer="north")

        assert len(_taken(queue)) == 1

    def test_successes_in_between_do_not_count_and_old_failures_are_forgotten(self, queue: WorkQueue) -> None:
        limits = "t:ann!2/50/60000"
        queue.enqueue(*(a_message(limits=limits) for _ in range(4)))
        self._fail(queue, *_taken(queue, 1))
        _wait_ms(60)
        self._fail(queue, *_taken(queue, 1))

        assert len(_taken(queue)) == 4

    def test_nothing_is_left_of_it(self, queue: WorkQueue, raw: RawQueue) -> None:
        self._tripped(queue)
        _wait_ms(110)
        for _ in range(10):
            taken = _taken(queue)
            queue.settle(*map(Ack, taken), consumer="north") if taken else None

        left = {key.rpartition(b":")[2] for key in raw.client.keys("*")}
        assert left.isdisjoint({b"slots", b"running", b"blocked", b"closed", b"limits"})


class TestWeights:
    """100 a second, each message says how many of them it takes."""

    LIMITS = "t=100/1000/100*"

    def _enqueue(self, queue: WorkQueue, *costs: int) -> None:
        queue.enqueue(*(a_message(b"%d" % cost, limits=f"{self.LIMITS}&{cost}") for cost in costs))

    def test_as_much_starts_as_the_bucket_holds_in_order(self, queue: WorkQueue) -> None:
        self._enqueue(queue, 60, 30, 60, 1)

        assert bodies(_taken(queue)) == [b"60", b"30"]
        _, next_ms = queue.admit(10)
        assert 400 < next_ms <= 500

    def test_more_than_the_burst_starts_when_the_bucket_is_full_and_is_paid_off_after_it(
        self, queue: WorkQueue
    ) -> None:
        self._enqueue(queue, 300, 1)

        assert bodies(_taken(queue)) == [b"300"]
        _, next_ms = queue.admit(10)
        assert 1_900 < next_ms <= 2_010

    def test_what_costs_nothing_starts_at_any_time(self, queue: WorkQueue) -> None:
        self._enqueue(queue, 100, 0)

        assert len(_taken(queue)) == 2

    def test_the_truth_is_taken_in_place_of_what_was_assumed(self, store: Store, queue: WorkQueue) -> None:
        self._enqueue(queue, 50, 50, 50)
        first, second = _taken(queue)

        store.run(queue.calls.spend(first.fence, 0, [1], "north"))  # type: ignore[arg-type]
        assert bodies(_taken(queue)) == [b"50"]
        assert store.run(queue.calls.spend(second.fence, 150, [1], "north")) == 1  # type: ignore[arg-type]
        assert store.run(queue.calls.spend(second.fence, 150, [1], "north")) == 1  # type: ignore[arg-type]
        self._enqueue(queue, 1)
        _, next_ms = queue.admit(10)
        assert 850 < next_ms <= 1_010

    def test_a_message_that_comes_back_costs_what_was_said(
        self, store: Store, queue: WorkQueue, raw: RawQueue
    ) -> None:
        self._enqueue(queue, 50)
        (delivery,) = _taken(queue)
        store.run(queue.calls.spend(delivery.fence, 7, [1], "north"))  # type: ignore[arg-type]

        queue.settle(Release(delivery), consumer="north")

        record: Any = raw.client.hget(raw.key("parcels"), delivery.id)
        assert b" t=100/1000/100*&7 " in record

    def test_the_delivery_of_another_costs_nobody_anything(self, store: Store, queue: WorkQueue) -> None:
        assert store.run(queue.calls.spend(7, 7, [1], "north")) == 0  # type: ignore[arg-type]
