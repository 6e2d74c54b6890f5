"""The recovery scanner's actor, without a process: what it finds stuck, and what it leaves alone."""

from __future__ import annotations

from mqworker.actors.mail import Drain
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.recovery_scanner import ROUND_MS, RecoveryScanner
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.testing.memory_connection import MemoryConnection
from tests.support.messages import a_message

LEASE_MS = 10_000


class Stage:
    """A scanner, and a queue with two messages."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = Store(MemoryConnection(self.clock), clock=self.clock)
        self.queue = WorkQueue("q", store)
        self.queue.enqueue(a_message(b"1"), a_message(b"2"))
        roster = QueueRoster(store, WorkQueueOptions())
        self.scanner = RecoveryScanner(store, roster, interval_ms=ROUND_MS, log=get_logger())

    def scan(self, passed_ms: int = 0) -> int:
        """Let time pass, and turn until nothing is due; how many deliveries were reclaimed by then."""
        self.clock.advance(ms=passed_ms)
        now_ms = self.clock.monotonic_ms()
        for _ in range(10):
            self.scanner.turn(now_ms)
        return int(self.scanner.facts()["reclaimed"])


def test_a_delivery_whose_lease_ended_is_reclaimed() -> None:
    stage = Stage()
    (lost,) = stage.queue.claim(1, lease_ms=LEASE_MS)

    reclaimed = stage.scan(LEASE_MS + 1)

    assert reclaimed == 1
    assert lost.id in [each.id for each in stage.queue.claim(10)]


def test_a_delivery_whose_lease_holds_is_left_alone() -> None:
    stage = Stage()
    stage.queue.claim(1, lease_ms=LEASE_MS)

    assert stage.scan(LEASE_MS // 2) == 0
    assert stage.queue.counts().ready == 1


def test_what_is_reclaimed_is_reclaimed_once() -> None:
    stage = Stage()
    stage.queue.claim(2, lease_ms=LEASE_MS)

    reclaimed = [stage.scan(LEASE_MS + 1), stage.scan(ROUND_MS), stage.scan(LEASE_MS)]

    assert reclaimed == [2, 2, 2]
    assert stage.queue.counts().ready == 2


def test_it_waits_for_its_next_round_when_nothing_is_stuck() -> None:
    stage = Stage()
    stage.scan()

    assert 0 < stage.scanner.next_turn_in_ms(stage.clock.monotonic_ms()) <= ROUND_MS


def test_it_is_done_when_it_is_told_to_drain() -> None:
    stage = Stage()

    posts = stage.scanner.handle(Drain(1_000), "supervisor", 0)

    assert (list(posts), stage.scanner.is_done) == ([], True)
