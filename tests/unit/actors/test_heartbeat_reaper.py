"""The heartbeat reaper without Redis: whom it takes for silent after it was cut off itself."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from mqworker.actors.heartbeat_reaper import HeartbeatReaper
from mqworker.actors.mail import ConsumerGone, ConsumerStarted
from mqworker.actors.queue_roster import QueueRoster
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.names import QueueName
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.store import Store

INTERVAL_MS, TIMEOUT_MS = 1_000, 5_000


class FakeQueue:
    """Others were silent for a long time; notes what is done about it, and can be away."""

    name = "q"

    def __init__(self) -> None:
        self.calls = SimpleNamespace(keys=WorkQueueKeys.of("mqw", QueueName("q")))
        self.is_away = False
        self.reaped: list[str] = []

    def beat(self, _consumer: str) -> None:
        if self.is_away:
            raise StoreUnavailable("away")

    def silent_consumers(self, _silent_ms: int) -> list[str]:
        return ["other"]

    def reap(self, consumer: str, *, silent_ms: int) -> int:  # noqa: ARG002 - as WorkQueue
        self.reaped.append(consumer)
        return 0


class Stage:
    """A reaper, one queue and a clock."""

    def __init__(self) -> None:
        self.queue = FakeQueue()
        self.known = [self.queue]
        self.now_ms = 10_000
        self.reaper = HeartbeatReaper(
            cast(Store, SimpleNamespace(run=lambda _call: True)),
            cast(QueueRoster, self),
            namespace="mqw",
            interval_ms=INTERVAL_MS,
            timeout_ms=TIMEOUT_MS,
            log=get_logger(),
            node_file=Path("nowhere") / "slots",
        )
        self.reaper.handle(ConsumerStarted("mine"), "supervisor", self.now_ms)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.known)

    def refresh(self, now_ms: int, *, at_once: bool = False) -> None:  # noqa: ARG002 - as QueueRoster
        """The registry is read seldom, unless it must be."""
        if at_once:
            self.known = [self.queue]

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.reaper.turn(self.now_ms)
            self.now_ms += INTERVAL_MS


def test_silent_consumers_are_reaped_from_the_first_round_on() -> None:
    stage = Stage()

    stage.rounds(1)

    assert stage.queue.reaped == ["other"]


def test_after_an_outage_everybody_gets_the_time_to_be_heard_again() -> None:
    stage = Stage()
    stage.rounds(1)
    stage.queue.reaped.clear()
    stage.queue.is_away = True
    stage.rounds(10)
    stage.queue.is_away = False

    stage.rounds(TIMEOUT_MS // INTERVAL_MS)
    reaped_at_once = list(stage.queue.reaped)
    stage.rounds(1)

    assert reaped_at_once == []
    assert stage.queue.reaped == ["other"]


def test_what_a_dispatcher_of_this_node_held_is_released_at_once_all_the_same() -> None:
    stage = Stage()
    stage.queue.is_away = True
    stage.rounds(10)
    stage.queue.is_away = False
    stage.reaper.handle(ConsumerGone("mine"), "supervisor", stage.now_ms)

    stage.rounds(1)

    assert stage.queue.reaped == ["mine"]


def test_what_it_held_in_a_queue_that_is_new_is_released_at_once_too() -> None:
    stage = Stage()
    stage.known = []
    stage.rounds(1)

    stage.reaper.handle(ConsumerGone("mine"), "supervisor", stage.now_ms)
    stage.rounds(1)

    assert "mine" in stage.queue.reaped
