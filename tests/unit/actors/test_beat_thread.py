"""The beat thread: on time whatever the actor does, and never silent without the actor knowing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import pytest

from mqworker.actors.beat_thread import BeatThread
from mqworker.model.clock import SystemClock
from mqworker.queues.work.heartbeat import Heartbeat, Reading
from tests.support.deadline import wait_until


class FakeHeartbeat:
    """Answers each beat at once, until it breaks."""

    def __init__(self) -> None:
        self.sent: list[set[str]] = []
        self.problem = ""
        self.failure: Exception | None = None

    def send(self, consumers: Iterable[str], now_ms: int) -> None:
        del now_ms
        if self.failure is not None:
            raise self.failure
        self.sent.append(set(consumers))

    def receive(self, now_ms: int) -> list[Reading]:
        return [Reading("beats", now_ms, now_ms, {})]

    def watched(self) -> tuple[()]:
        return ()


Beating = Callable[[FakeHeartbeat, int], BeatThread]


@pytest.fixture
def beating() -> Iterator[Beating]:
    """Threads that beat at an interval, in ms; they end with the test."""
    begun: list[BeatThread] = []

    def begin(heartbeat: FakeHeartbeat, interval_ms: int) -> BeatThread:
        begun.append(BeatThread(cast(Heartbeat, heartbeat), interval_ms, SystemClock()).start())
        return begun[-1]

    yield begin
    for each in begun:
        each.close()


def test_it_beats_though_nobody_asks_what_was_read(beating: Beating) -> None:
    heartbeat = FakeHeartbeat()

    beating(heartbeat, 5)

    wait_until(lambda: len(heartbeat.sent) >= 20, "beats go on")


def test_one_more_consumer_is_beaten_for_at_once(beating: Beating) -> None:
    heartbeat = FakeHeartbeat()
    beats = beating(heartbeat, 3_600_000)

    beats.beat_for({"north"})

    wait_until(lambda: {"north"} in heartbeat.sent, "the first beat of north")


def test_what_was_read_comes_in_order_and_once(beating: Beating) -> None:
    beats, seen = beating(FakeHeartbeat(), 5), []
    wait_until(lambda: seen.extend(beats.readings()) or len(seen) >= 10, "ten readings")

    read_at_ms = [reading.read_at_ms for reading in seen]

    assert read_at_ms == sorted(read_at_ms)


def test_a_thread_that_ended_ends_its_process(beating: Beating) -> None:
    heartbeat = FakeHeartbeat()
    beats = beating(heartbeat, 5)
    heartbeat.failure = ValueError("a mistake of ours")

    with pytest.raises(RuntimeError, match="beat thread ended"):
        wait_until(lambda: beats.readings() is None, "it is said")


def test_a_thread_that_was_closed_beats_no_more(beating: Beating) -> None:
    heartbeat = FakeHeartbeat()
    beats = beating(heartbeat, 5)
    wait_until(lambda: len(heartbeat.sent) >= 2, "it beats")
    before = set(threading.enumerate())

    beats.close()

    wait_until(lambda: not [each for each in before if each.name == "beats" and each.is_alive()], "it ends")
