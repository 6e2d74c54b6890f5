"""Permits: a limited message starts with a fresh one, or waits again. The real scripts, on a test clock."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker.model.guard import Guard, GuardMode
from mqworker.model.instant import After
from mqworker.model.limits import rate_limits
from mqworker.model.message import Message
from mqworker.model.names import ConsumerName, TaskName
from mqworker.model.rate import Rate
from mqworker.model.record import permit_ms_of
from mqworker.model.settlement import Ack, Bury, Crash, Release, RetryAt
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.testing.memory_connection import MemoryConnection
from tests.support.messages import a_message, bodies

PERMIT_MS = 200
NODE = "node-1"
HOUR_MS = 3_600_000

Option: TypeAlias = Any
"""A field of `Message`."""


class SteppedClock:
    """A clock that is set, forward and back."""

    def __init__(self) -> None:
        self.at_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000


class Site:
    """A queue in memory."""

    def __init__(self, permit_ms: int = PERMIT_MS) -> None:
        self.clock = SteppedClock()
        self.store = Store(MemoryConnection(self.clock), clock=self.clock)
        self.queue = WorkQueue("q", self.store, WorkQueueOptions(permit_ms=permit_ms))

    def enqueue(self, *texts: str, rate: str = "10/s", **options: Option) -> None:
        self.queue.enqueue(*(limited(text, rate, **options) for text in texts))

    def admit_later(self, passed_ms: int = 2_000) -> None:
        self.clock.at_ms += passed_ms
        self.queue.admit(100)

    def claim(self, count: int = 100) -> list[bytes]:
        return bodies(self.queue.claim(count, consumer=NODE))

    def records(self, count: int = 100) -> list[tuple[int, bytes]]:
        claimed: Any = self.store.run(self.queue.calls.claim_records(count, ConsumerName(NODE)))
        return list(claimed)


def limited(text: str, rate: str = "10/s", *, burst: int = 10, **options: Option) -> Message:
    limits = rate_limits(TaskName("t"), [(Rate(rate, burst=burst), None)])
    return a_message(text.encode(), limits=limits, **options)


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_claimed_says_how_long_its_permit_is_valid_still(site: Site) -> None:
    site.enqueue("a")
    site.queue.admit(1)
    site.clock.at_ms += 50

    ((_, record),) = site.records()

    assert permit_ms_of(record) == PERMIT_MS - 50


@pytest.mark.parametrize("late_ms", [PERMIT_MS, 10 * PERMIT_MS, -1, -HOUR_MS], ids=str)
def test_without_a_fresh_permit_it_waits_again_in_its_old_place(site: Site, late_ms: int) -> None:
    site.enqueue("a", "b", "c", "d")
    site.queue.admit(2)
    site.clock.at_ms += late_ms

    stale = site.claim()
    site.admit_later(0)  # after a clock was set back, buckets are empty at the first look
    claimed = site.claim()
    site.admit_later()

    assert stale == []
    assert claimed + site.claim() == [b"a", b"b", b"c", b"d"]


def test_others_in_the_line_are_delivered_beside_it(site: Site) -> None:
    site.enqueue("limited")
    site.queue.admit(1)
    site.queue.enqueue(a_message(b"free"), a_message(b"urgent", priority=9))
    site.clock.at_ms += PERMIT_MS

    assert site.claim() == [b"urgent", b"free"]
    assert site.queue.counts().delayed == 1


def test_a_guard_and_a_deadline_are_as_they_were_when_it_waits_again(site: Site) -> None:
    guard = Guard("once", GuardMode.UNTIL_CLAIMED)
    site.enqueue("a", guard=guard, deadline=After(5_000))
    site.queue.admit(1)
    site.clock.at_ms += PERMIT_MS

    site.claim()
    (second,) = site.queue.enqueue(limited("b", guard=guard))
    site.clock.at_ms += 5_000

    assert not second.is_new
    assert site.queue.expire() == 1


@pytest.mark.parametrize("end", [Release, Crash], ids=["released", "crashed"])
def test_what_comes_back_needs_another_permit(site: Site, end: type[Release | Crash]) -> None:
    site.enqueue("a", "b")
    site.queue.admit(1)
    (delivery,) = site.queue.claim(1, consumer=NODE)

    site.queue.settle(end(delivery), consumer=NODE)

    assert site.claim() == []
    site.admit_later()
    assert site.claim() == [b"a", b"b"]


def test_a_retry_needs_another_permit(site: Site) -> None:
    site.enqueue("a")
    site.queue.admit(1)
    (delivery,) = site.queue.claim(1, consumer=NODE)

    site.queue.settle(RetryAt(delivery, After(10)), consumer=NODE)
    site.clock.at_ms += 10
    site.queue.promote()

    assert site.claim() == []
    site.queue.admit(1)
    assert site.claim() == [b"a"]


def test_reaped_and_reclaimed_ones_wait_before_the_others_with_their_limits(site: Site) -> None:
    site.enqueue("a", "b", "c", "d", "e")
    site.queue.admit(4)
    site.queue.claim(2, consumer=NODE)
    site.queue.claim(2, lease_ms=100)

    site.clock.at_ms += 1_000
    reclaimed = sum(site.queue.reclaim())
    reaped = site.queue.reap(NODE, silent_ms=0)

    assert (reclaimed, reaped) == (2, 2)
    assert site.claim() == []
    site.queue.admit(10)
    assert site.claim() == [b"a", b"b", b"c", b"d", b"e"]


def test_a_revived_dead_letter_waits_for_a_permit_and_has_its_body(site: Site) -> None:
    site.enqueue("a", deadline=After(60_000))
    site.queue.admit(1)
    (delivery,) = site.queue.claim(1, consumer=NODE)
    site.queue.settle(Bury(delivery, "given up"), consumer=NODE)

    site.queue.revive(delivery.id)

    assert site.claim() == []
    site.queue.admit(1)
    assert site.claim() == [b"a"]


def test_tenants_that_only_take_turns_need_no_permit(site: Site) -> None:
    site.queue.enqueue(a_message(b"a", limits="fair=1~tenant"))
    site.queue.admit(1)
    (delivery,) = site.queue.claim(1, consumer=NODE)

    site.queue.settle(Release(delivery), consumer=NODE)
    site.clock.at_ms += HOUR_MS

    assert site.claim() == [b"a"]


def test_a_limited_record_that_somebody_put_in_the_line_waits_for_its_permit(site: Site) -> None:
    site.enqueue("a", "b")
    site.queue.admit(1)
    (_, record), *_ = site.records()
    keys = site.queue.calls.keys

    site.store.connection.execute([("RPUSH", keys.named("ready"), record)], keys.meta)

    assert site.claim() == []
    site.admit_later()
    assert sorted(site.claim()) == [b"a", b"b"]


def test_what_is_settled_while_its_permit_is_valid_is_settled_as_ever(site: Site) -> None:
    site.enqueue("a")
    site.queue.admit(1)
    (delivery,) = site.queue.claim(1, consumer=NODE)

    assert site.queue.settle(Ack(delivery), consumer=NODE) == []
    assert site.queue.counts().waiting == 0


@pytest.mark.parametrize("back_ms", [2_000, HOUR_MS, 400 * 24 * HOUR_MS], ids=str)
def test_a_clock_that_goes_back_costs_a_limit_no_more_than_an_empty_bucket(site: Site, back_ms: int) -> None:
    for tenant in range(5):
        limits = rate_limits(TaskName("t"), [(Rate("10/s"), f"t{tenant}")])
        site.queue.enqueue(*(a_message(b"x", limits=limits) for _ in range(100)))
    before = site.queue.admit(1_000)[0]
    site.claim()

    site.clock.at_ms -= back_ms
    at_once = site.queue.admit(1_000)[0]
    site.clock.at_ms += 1_000
    a_second_later = site.queue.admit(1_000)[0]

    assert (before, at_once) == (5 * 8, 0)
    assert a_second_later == 5 * 8


@settings(deadline=None, max_examples=40)
@given(
    rate=st.sampled_from(["1/s", "7/s", "100/s", "5/m", "1000/s"]),
    burst=st.integers(1, 60),
    looks=st.lists(st.tuples(st.integers(0, 700), st.integers(1, 50)), min_size=1, max_size=40),
)
def test_however_late_in_their_time_they_start_the_rate_is_kept(
    rate: str, burst: int, looks: list[tuple[int, int]]
) -> None:
    site = Site()
    limit = Rate(rate, burst=burst)
    per_ms = limit.count / limit.period_ms
    site.queue.enqueue(*(limited("x", rate, burst=burst) for _ in range(150)))
    admitted: list[tuple[int, int]] = []
    for passed_ms, room in looks:
        site.clock.at_ms += passed_ms
        admitted.append((site.clock.at_ms, site.queue.admit(room)[0]))

    most = max(burst, burst / 2 + per_ms * PERMIT_MS, 1 + per_ms * PERMIT_MS)
    for first in range(len(admitted)):
        total = 0
        for at_ms, count in admitted[first:]:
            total += count
            # The first of them start as late as they may, the last at once.
            window_ms = max(0, at_ms - admitted[first][0] - PERMIT_MS)
            assert total <= most + per_ms * window_ms + 1e-6
