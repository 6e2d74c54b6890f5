"""The heartbeat reaper on a server in memory: from whom it takes what, after whatever happened to itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

from mqworker.actors.beat_thread import BeatThread
from mqworker.actors.heartbeat_reaper import HeartbeatReaper
from mqworker.actors.mail import ConsumerGone, ConsumerStarted
from mqworker.actors.queue_roster import QueueRoster
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.model.message import Message
from mqworker.model.names import MessageId
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.heartbeat import Reading
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.command import Command, Reply
from mqworker.store.script import scripts_of
from mqworker.store.store import Store
from mqworker.testing.memory_connection import MemoryConnection

INTERVAL_MS, TIMEOUT_MS = 1_000, 5_000


class Faulty(MemoryConnection):
    """A server that can be away, and a process that can be stopped at the next round trip."""

    def __init__(self, clock: ManualClock) -> None:
        self.is_away = False
        super().__init__(clock)
        self.clock = clock
        self.stop_before = ""
        """The process is stopped for a minute before it sends a command with this name."""

    def execute(self, commands: Iterable[Command], key: str | None) -> list[Reply]:  # type: ignore[override]
        if self.is_away:
            raise StoreUnavailable("away")
        return super().execute(list(commands), key)

    def execute_each(self, commands, keys):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
        if self.is_away:
            return [StoreUnavailable("away")] * len(commands)
        if self.stop_before and any(self.stop_before in map(str, command) for command in commands):
            self.stop_before = ""
            self.clock.advance(ms=60_000)
        return super().execute_each(commands, keys)


class FakeBeats:
    """Others beat as the test says, and so do we, every interval."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.others: set[str] = set()
        self.listed: dict[str, bytes] = {}
        self.is_away = False
        self.problem = ""
        self._consumers: set[str] = set()
        self._beat_at_ms = 0

    def beat_for(self, consumers: Iterable[str]) -> None:
        self._consumers = set(consumers)
        self._beat_at_ms = 0

    def readings(self) -> list[Reading]:
        now_ms = self.clock.monotonic_ms()
        if now_ms < self._beat_at_ms:
            return []
        self._beat_at_ms = now_ms + INTERVAL_MS
        for consumer in self._consumers | self.others:
            self.listed[consumer] = str(now_ms).encode()
        return [] if self.is_away else [Reading("beats", now_ms, now_ms, dict(self.listed))]

    def watched(self) -> tuple[()]:
        return ()


class Stage:
    """A reaper, a few queues and a clock."""

    def __init__(self, queues: int = 1) -> None:
        self.clock = ManualClock()
        self.connection = Faulty(self.clock)
        store = Store(self.connection, retry_for_ms=0)
        self.queues = [WorkQueue(f"q{number}", store) for number in range(queues)]
        self.heartbeat = FakeBeats(self.clock)
        self.reaper = HeartbeatReaper(
            store,
            QueueRoster(store, WorkQueueOptions()),
            cast(BeatThread, self.heartbeat),
            namespace="mqw",
            interval_ms=INTERVAL_MS,
            timeout_ms=TIMEOUT_MS,
            log=get_logger(),
            node_file=Path("nowhere") / "slots",
            clock=self.clock,
        )
        self.reaper.handle(ConsumerStarted("mine"), "supervisor", self.clock.monotonic_ms())

    def hold(self, consumer: str, *, queue: int = 0) -> None:
        """Let a consumer hold one message more."""
        message = Message(MessageId(f"m{self.clock.now_ms()}"), b"")
        self.queues[queue].enqueue(message)
        assert self.queues[queue].claim(1, consumer=consumer)

    def held(self, queue: int = 0) -> int:
        return self.queues[queue].counts().leased

    def run(self, seconds: float) -> None:
        ends_at_ms = self.clock.monotonic_ms() + seconds * 1000
        while self.clock.monotonic_ms() < ends_at_ms:
            self.reaper.turn(self.clock.monotonic_ms())
            self.clock.advance(ms=max(10, self.reaper.next_turn_in_ms(self.clock.monotonic_ms())))


def test_what_a_consumer_held_is_released_when_it_was_silent_for_a_time_out() -> None:
    stage = Stage()
    stage.heartbeat.others = {"other"}
    stage.run(10)
    stage.hold("other")
    stage.heartbeat.others = set()

    stage.run(4)
    held_early = stage.held()
    stage.run(3)

    assert held_early == 1
    assert stage.held() == 0


def test_whoever_beats_keeps_what_it_holds_however_long_it_claims_nothing() -> None:
    stage = Stage()
    stage.heartbeat.others = {"other"}
    stage.hold("other")

    stage.run(600)

    assert stage.held() == 1


def test_one_that_beats_in_its_queue_alone_keeps_what_it_holds_there() -> None:
    stage = Stage()
    stage.hold("client")
    for _ in range(30):
        stage.queues[0].beat("client")
        stage.run(2)
    held_while_it_beat = stage.held()

    stage.run(12)

    assert held_while_it_beat == 1
    assert stage.held() == 0


def test_a_reaper_that_has_just_begun_takes_nothing_from_anybody() -> None:
    stage = Stage()
    stage.hold("other")
    stage.clock.advance(ms=3_600_000)  # nobody could beat: there was no server

    stage.run(4)

    assert stage.held() == 1


def test_after_an_outage_everybody_gets_the_time_to_be_heard_again() -> None:
    stage = Stage()
    stage.heartbeat.others = {"other"}
    stage.hold("other")
    stage.run(10)
    stage.connection.is_away = stage.heartbeat.is_away = True
    stage.heartbeat.others = set()
    stage.run(60)
    stage.connection.is_away = stage.heartbeat.is_away = False

    stage.run(4)
    held_early = stage.held()
    stage.run(4)

    assert held_early == 1
    assert stage.held() == 0


def test_a_reaper_that_was_stopped_between_the_judgement_and_the_act_takes_nothing() -> None:
    for command in ("TIME", scripts_of("mqworker.queues.work")("reap").sha):
        stage = Stage()
        stage.heartbeat.others = {"other"}
        stage.run(10)
        stage.hold("other")
        stage.run(5)
        stage.heartbeat.others = set()
        stage.connection.stop_before = command
        while stage.connection.stop_before:
            stage.run(0.01)
        stage.heartbeat.others = {"other"}  # it came back meanwhile

        stage.run(10)

        assert stage.held() == 1, command


def test_what_a_dispatcher_of_this_node_held_is_released_at_once_even_after_an_outage() -> None:
    stage = Stage()
    stage.hold("mine")
    stage.run(2)
    stage.connection.is_away = stage.heartbeat.is_away = True
    stage.run(60)
    stage.reaper.handle(ConsumerGone("mine"), "supervisor", stage.clock.monotonic_ms())
    stage.run(2)
    stage.connection.is_away = stage.heartbeat.is_away = False

    stage.run(1.5)

    assert stage.held() == 0


def test_what_it_held_in_a_queue_that_is_new_is_released_at_once_too() -> None:
    stage = Stage(2)
    stage.run(2)
    stage.hold("mine", queue=1)

    stage.reaper.handle(ConsumerGone("mine"), "supervisor", stage.clock.monotonic_ms())
    stage.run(0.2)

    assert stage.held(1) == 0


def test_many_queues_are_gone_through_for_one_that_fell_silent() -> None:
    stage = Stage(1_200)
    stage.heartbeat.others = {"other"}
    for number in range(0, 1_200, 120):
        stage.hold("other", queue=number)
    for queue in stage.queues:
        stage.connection.execute([("SADD", "mqw:queues", queue.name)], None)
    stage.run(10)
    stage.heartbeat.others = set()

    stage.run(TIMEOUT_MS / 1000 + 1.5)

    assert [stage.held(number) for number in range(0, 1_200, 120)] == [0] * 10
