"""Schedules on a server whose clock is set: ticks go on by the new clock, each once."""

from __future__ import annotations

import pytest

from mqworker.log import get_logger
from mqworker.model.call_template import CallTemplate
from mqworker.model.names import QueueName
from mqworker.model.schedule import CatchUp, Every
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.tasks.schedules.calls import ScheduleCalls
from mqworker.tasks.schedules.firing import ScheduleFiring
from mqworker.tasks.schedules.stored import DATA, ScheduleSpec
from mqworker.testing.memory_connection import MemoryConnection
from tests.support.messages import a_message
from tests.unit.queues.work.test_permits import HOUR_MS, SteppedClock

TICK_MS = 60_000
NODE = "node-1"


class Site:
    """Two brokers on one server, and a schedule that ticks each minute."""

    def __init__(self, catch_up: CatchUp = "skip") -> None:
        self.clock, self.monotonic = SteppedClock(), SteppedClock()
        self.clock.at_ms -= self.clock.at_ms % TICK_MS
        store = Store(MemoryConnection(self.clock), clock=self.clock)
        self.queue = WorkQueue("q", store)
        self.brokers = [
            ScheduleFiring(store, "mqw", lambda _: self.queue, get_logger(), self.monotonic) for _ in range(2)
        ]
        call = CallTemplate(QueueName("q"), a_message(b""))
        spec = ScheduleSpec("app/tick", Every(TICK_MS), catch_up, 0, call)
        store.run(ScheduleCalls("mqw").store(DATA, [spec]))

    def pass_time(self, ms: int) -> list[int]:
        """Which ticks run meanwhile."""
        ran: list[int] = []
        for _ in range(0, ms, 1_000):
            self.clock.at_ms += 1_000
            self.monotonic.at_ms += 1_000
            ran += self.run()
        return ran

    def run(self) -> list[int]:
        for broker in self.brokers:
            broker.fire()
        deliveries = self.queue.claim(1_000, consumer=NODE)
        self.queue.settle(*map(Ack, deliveries), consumer=NODE)
        return [int(delivery.id.partition("@")[2]) for delivery in deliveries]


@pytest.mark.parametrize("back_ms", [HOUR_MS, 24 * HOUR_MS])
def test_after_a_clock_went_back_ticks_go_on_by_the_new_one(back_ms: int) -> None:
    site = Site()
    before = site.pass_time(10 * TICK_MS)

    site.clock.at_ms -= back_ms
    began_ms = site.clock.at_ms
    after = site.pass_time(3 * TICK_MS)

    assert len(before) == 10
    first_ms = began_ms - began_ms % TICK_MS + TICK_MS
    assert after == list(range(first_ms, site.clock.at_ms + 1, TICK_MS))
    assert site.brokers[0].server_clock.steps == 1


@pytest.mark.parametrize("step_ms", [2_000, -2_000])
def test_small_steps_lose_no_tick_and_fire_none_twice(step_ms: int) -> None:
    site = Site()
    ran: list[int] = []

    for _ in range(20):
        ran += site.pass_time(31_000)
        site.clock.at_ms += step_ms
        ran += site.run()
    ran += site.pass_time(10_000)

    assert ran == list(range(ran[0], ran[-1] + 1, TICK_MS))
    assert site.clock.at_ms - ran[-1] < TICK_MS


def test_after_a_clock_went_forward_a_bounded_number_is_made_up_for() -> None:
    site = Site("all")
    site.pass_time(2 * TICK_MS)

    site.clock.at_ms += 7 * 24 * HOUR_MS
    made_up = site.run()
    after = site.pass_time(TICK_MS)

    assert len(made_up) == 100
    assert made_up[-1] == site.clock.at_ms - TICK_MS
    assert after == [site.clock.at_ms]
    assert sum(broker.skipped for broker in site.brokers) == 7 * 24 * 60 - 100


def test_forward_and_back_again_costs_no_more_than_what_was_fired_ahead() -> None:
    site = Site("all")
    site.pass_time(2 * TICK_MS)
    site.clock.at_ms += 24 * HOUR_MS
    site.run()

    site.clock.at_ms -= 24 * HOUR_MS
    began_ms = site.clock.at_ms
    after = site.pass_time(2 * TICK_MS)

    assert after == [began_ms + TICK_MS, began_ms + 2 * TICK_MS]
