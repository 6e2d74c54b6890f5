"""Heartbeat reaper: beats for this node's consumers, and releases what silent ones anywhere held.

Owns:     the list of this node's consumers, and who was heard when.
Receives: ConsumerStarted, ConsumerGone (supervisor).
Sends:    nothing.
Never:    takes anything from a consumer that is heard anywhere, or on a judgement that may be out of date.

A consumer beats once per server, whatever queues it holds something in; a thread of its own sees to that
(beat_thread.py). When one falls silent, all queues are gone through, many in one round trip, for what it
held; besides, each is looked at now and then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.beat_thread import BeatThread
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import ConsumerGone, ConsumerStarted, Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.node_file import ended_nodes, forget_node
from mqworker.actors.patrol import BATCH, Patrol, QueueLooks
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.silence import SilenceWatch
from mqworker.actors.wiring import (
    logger_of,
    open_store,
    quarantine_of,
    queue_options,
    run_actor,
    topic_options,
)
from mqworker.errors import ConfigurationError
from mqworker.log import Logger
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import ConsumerName, QueueName, parse_consumer_name
from mqworker.queues.topics.client import Topics
from mqworker.queues.work.heartbeat import Heartbeat
from mqworker.queues.work.steps import LARGEST_BATCH
from mqworker.queues.work.throughput import COUNTERS, sample
from mqworker.store.command import Command
from mqworker.store.script import Call
from mqworker.store.store import Store

_LATE_MS = 1_000
_SAMPLE_EVERY_MS = 9_000
"""Of a queue whose counters stand still: so that `status` knows that nothing happened."""


class HeartbeatReaper:
    """The actor; see the module's first lines."""

    name = "heartbeat_reaper"

    def __init__(
        self,
        store: Store,
        roster: QueueRoster,
        beats: BeatThread,
        *,
        namespace: str,
        interval_ms: int,
        timeout_ms: int,
        log: Logger,
        node_file: Path,
        topics: TopicSweep | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._roster = roster
        self._beats = beats
        self._namespace = namespace
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms
        self._topics = topics
        self._node_file = node_file
        self._clock = clock or SystemClock()
        self._rounds = Rounds(interval_ms, log, store.quarantine)
        self._looks = QueueLooks(store, roster, Patrol(interval_ms), log)
        self._watch = SilenceWatch(timeout_ms)
        self._log = log
        self._consumers: set[str] = set()
        self._departed = Departed()
        self._silent: set[str] = set()
        self._is_sweep_due = False
        self._sweep: Sweep | None = None
        self._strangers: dict[QueueName, dict[str, tuple[bytes, int]]] = {}
        """Consumers that beat nowhere but in their queue: what was noted of them there, and since when."""
        self._to_reap: deque[tuple[QueueName, ConsumerName]] = deque()
        self._to_sample: deque[QueueName] = deque()
        self._counted: dict[QueueName, tuple[list[Any], int]] = {}
        self._problem = ""
        self._heard_at_ms: int | None = None
        """When a server answered a beat last."""
        self._released = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """Note whom to beat for."""
        match mail:
            case ConsumerStarted(consumer):
                self._consumers.add(consumer)
                self._beats.beat_for(self._consumers)
            case ConsumerGone(consumer):
                self._consumers.discard(consumer)
                self._beats.beat_for(self._consumers)
                self._departed.consumers.add(consumer)
                self._is_sweep_due = True
                self._rounds.hurry(0, now_ms)
            case Drain():
                self._beats.close()
                self.is_done = True
            case _:
                pass
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Hear who beats; then one slice of the queues, or of what is to be done about them."""
        self._hear(now_ms)
        if not self._rounds.hold(now_ms, self._chores(now_ms)):
            return ()
        is_acting = self._to_reap or self._to_sample
        self._rounds.attempt(partial(self._act if is_acting else self._look, now_ms))
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next look, or at once while there is something to do."""
        if self._to_reap or self._to_sample:
            return 0
        chores_in_ms, look_in_ms = self._rounds.due_in_ms(now_ms), self._looks.patrol.due_in_ms(now_ms)
        return min(chores_in_ms, look_in_ms)

    def watched(self) -> Iterable[Watched]:
        """The answers to beats."""
        return self._beats.watched()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "rounds": self._rounds.count,
            "released": self._released,
            "consumers": sorted(self._consumers),
            "peers_dropped": 0 if self._topics is None else self._topics.dropped,
            "is_store_heard": self._is_store_heard(),
        }

    def _is_store_heard(self) -> bool:
        """Whether a server answered lately: what probes ask, instead of asking the server themselves."""
        since_ms = self._clock.monotonic_ms() - (self._heard_at_ms or 0)
        return self._heard_at_ms is not None and since_ms <= 3 * self._interval_ms + _LATE_MS

    # Beats

    def _hear(self, now_ms: int) -> None:
        for reading in self._beats.readings():
            self._watch.note(reading)
            self._heard_at_ms = now_ms
        if self._beats.problem != self._problem:
            self._problem = self._beats.problem
            self._log.warning("beat_refused", reason=self._problem)
        silent = self._watch.silent(now_ms) - self._consumers
        if silent - self._silent:
            self._is_sweep_due = True
            self._rounds.hurry(0, now_ms)
        self._silent = silent

    # Once per interval

    def _chores(self, now_ms: int) -> Iterator[Callable[[], object]]:
        yield self._note_ended_nodes
        # Whoever is gone may hold something in a queue that was made a moment ago.
        yield partial(self._looks.refresh, now_ms, at_once=self._is_sweep_due)
        yield self._begin_sweep
        yield partial(self._sweep_topics, now_ms)

    def _note_ended_nodes(self) -> None:
        """Of a node beside this one whose last process is gone, nothing need wait for the time-out."""
        ended = set(ended_nodes(self._node_file))
        self._is_sweep_due = self._is_sweep_due or bool(ended - self._departed.boots)
        self._departed.boots |= ended

    def _begin_sweep(self) -> None:
        if self._is_sweep_due:
            self._is_sweep_due = False
            self._sweep = Sweep(self._departed.copy(), set(self._roster))
            self._looks.patrol.hurry_all()

    def _end_sweep_when_through(self, sweep: Sweep) -> None:
        """All queues were gone through: nothing of the departed is left anywhere."""
        if not sweep.unseen and not self._to_reap:
            for boot in sweep.departed.boots:
                forget_node(self._node_file, boot)
            self._departed.remove(sweep.departed)
            self._sweep = None

    def _sweep_topics(self, now_ms: int) -> None:
        if self._topics is not None and self._watch.is_listening(now_ms):
            self._topics.turn(now_ms)

    # Queues

    def _look(self, now_ms: int) -> None:
        """See which consumers of these queues are gone, and whether the counters move."""
        patrol = self._looks.patrol
        names = patrol.take(now_ms)
        for name, (entries, counters) in self._looks.glance(names, self._questions, now_ms).items():
            self._to_reap.extend((name, each) for each in self._lost_in(name, entries, now_ms))
            self._count(name, counters, now_ms)
        if self._sweep is not None:
            self._sweep.unseen.difference_update(name for name in names if not patrol.is_away(name))
            self._end_sweep_when_through(self._sweep)

    def _questions(self, name: QueueName) -> tuple[Command, ...]:
        prefix = f"{self._namespace}:{{{name}}}:"
        return ("ZRANGE", f"{prefix}consumers", 0, -1, "WITHSCORES"), ("HMGET", f"{prefix}meta", *COUNTERS)

    def _lost_in(self, name: QueueName, entries: list[bytes], now_ms: int) -> list[ConsumerName]:
        """Those of the consumers of a queue from whom something may have to be taken."""
        if not entries:
            self._strangers.pop(name, None)
            return []
        known = self._strangers.get(name, {})
        strangers: dict[str, tuple[bytes, int]] = {}
        lost: list[ConsumerName] = []
        for member, noted in zip(entries[::2], entries[1::2], strict=True):
            consumer = parse_consumer_name(member)
            if consumer is None:  # nobody can have this name, or anything under it
                key = f"{self._namespace}:{{{name}}}:consumers"
                self._store.quarantine.note(
                    "consumer", key, "no name of a consumer", member, remove_by="ZREM"
                )
            elif self._is_over(consumer, now_ms):
                if not self._watch.is_listed(consumer) and consumer not in self._departed:
                    # It may beat in this queue alone, as clients do that hold something under a name.
                    before, since_ms = known.get(consumer, (noted, now_ms))
                    strangers[consumer] = (noted, since_ms if before == noted else now_ms)
                    if now_ms - strangers[consumer][1] < self._timeout_ms:
                        continue
                lost.append(consumer)
        self._strangers[name] = strangers
        if not strangers:
            del self._strangers[name]
        return lost

    def _is_over(self, consumer: ConsumerName, now_ms: int) -> bool:
        if consumer in self._departed:
            return True
        return consumer not in self._consumers and self._watch.is_silent(consumer, now_ms)

    def _count(self, name: QueueName, counters: list[Any], now_ms: int) -> None:
        """See to it that samples are taken: while something moves, and now and then where few queues are."""
        patrol = self._looks.patrol
        before, sampled_at_ms = self._counted.get(name, ([None] * len(counters), now_ms - _SAMPLE_EVERY_MS))
        has_moved = counters != before
        is_due = now_ms - sampled_at_ms >= _SAMPLE_EVERY_MS and not patrol.is_slow and any(counters)
        if has_moved or is_due:
            self._counted[name] = (counters, now_ms)
            self._to_sample.append(name)
            if patrol.is_slow:
                patrol.hurry(name, now_ms + self._interval_ms)

    def _act(self, now_ms: int) -> None:
        """Release and take samples in the next few queues, in one round trip for all."""
        pairs = [self._to_reap.popleft() for _ in range(min(BATCH, len(self._to_reap)))]
        names = [self._to_sample.popleft() for _ in range(min(BATCH, len(self._to_sample)))]
        until_ms = self._valid_until_ms(pairs, now_ms)
        calls: dict[QueueName, list[Call[Any]]] = {}
        consumers: dict[QueueName, list[ConsumerName]] = {}
        asked_at_ms = self._clock.monotonic_ms()
        for name, consumer in pairs:
            if name in until_ms and self._is_over(consumer, asked_at_ms):  # looked at again: time has passed
                calls.setdefault(name, []).append(self._reap(name, consumer, until_ms[name]))
                consumers.setdefault(name, []).append(consumer)
        for name in names:
            calls.setdefault(name, []).append(sample(self._roster.calls(name).keys))
        answered = self._looks.run(calls, now_ms)
        for name, results in answered.items():
            for consumer, released in zip(consumers.get(name, ()), results, strict=False):
                self._note(name, consumer, released)
        if self._sweep is not None:  # one whose server fell silent just now is to be gone through again
            self._sweep.unseen.update(name for name, _ in pairs if self._looks.patrol.is_away(name))
            self._end_sweep_when_through(self._sweep)

    def _valid_until_ms(
        self, pairs: Iterable[tuple[QueueName, ConsumerName]], now_ms: int
    ) -> dict[QueueName, int]:
        """By the clock of each queue's server: until when the judgement on its consumers may be acted on."""
        names = list(dict.fromkeys(name for name, _ in pairs))
        times = self._looks.glance(names, lambda _: (("TIME",),), now_ms)
        return {
            name: int(seconds) * 1000 + int(micros) // 1000 + self._timeout_ms // 2
            for name, ((seconds, micros),) in times.items()
        }

    def _reap(self, name: QueueName, consumer: ConsumerName, until_ms: int) -> Call[int]:
        calls = self._roster.calls(name)
        if consumer in self._departed.consumers:  # its own node took leave of it: nothing is counted
            return calls.reap(consumer, 0, LARGEST_BATCH, losses=0)
        if consumer in self._departed:
            return calls.reap(consumer, 0, LARGEST_BATCH, losses=1)
        silent_ms = self._watch.timeout_ms(consumer)
        return calls.reap(consumer, silent_ms, LARGEST_BATCH, losses=1, valid_until_ms=until_ms)

    def _note(self, name: QueueName, consumer: ConsumerName, released: int) -> None:
        if released > 0:
            self._released += released
            self._log.warning("consumer_reaped", queue=name, consumer=consumer, released=released)
        if released >= LARGEST_BATCH:  # there may be more
            self._to_reap.append((name, consumer))


@dataclass(slots=True)
class Departed:
    """Consumers that are known to have ended: by name, or by the boot of their node."""

    consumers: set[str] = field(default_factory=set)
    boots: set[str] = field(default_factory=set)

    def __contains__(self, consumer: str) -> bool:
        return consumer in self.consumers or any(f".{boot}." in consumer for boot in self.boots)

    def copy(self) -> Departed:
        """As of now."""
        return Departed(set(self.consumers), set(self.boots))

    def remove(self, others: Departed) -> None:
        """They hold nothing any more."""
        self.consumers -= others.consumers
        self.boots -= others.boots


@dataclass(frozen=True, slots=True)
class Sweep:
    """Going through all queues for what the departed, or the silent, held."""

    departed: Departed
    unseen: set[QueueName]


def main(control: Mailbox, start: ChildStart) -> int:
    """The heartbeat reaper's process."""
    settings, log = start.settings, logger_of(start)
    timeout_ms = int(settings.heartbeat_timeout_s * 1000)
    interval_ms = int(settings.heartbeat_interval_s * 1000)
    heartbeat = Heartbeat(open_store(start).connection, settings.namespace, timeout_ms=timeout_ms)
    store = open_store(start, quarantine_of(start))
    reaper = HeartbeatReaper(
        store,
        QueueRoster(store, queue_options(settings)),
        BeatThread(heartbeat, interval_ms, SystemClock()).start(),
        namespace=settings.namespace,
        interval_ms=interval_ms,
        timeout_ms=timeout_ms,
        log=log,
        node_file=Path(start.slots_path),
        topics=TopicSweep(Topics(store, topic_options(settings)), log),
    )
    return run_actor(reaper, control, start, store)


SWEEP_EVERY_MS = 5_000
"""One SMEMBERS while nobody listens to anything."""


class TopicSweep:
    """Calls `sweep` every few seconds."""

    def __init__(self, topics: Topics, log: Logger) -> None:
        self._topics = topics
        self._log = log
        self._next_ms = 0
        self.dropped = 0

    def turn(self, now_ms: int) -> None:
        """Drop silent peers, if it is time."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + SWEEP_EVERY_MS
        try:
            dropped = self._topics.sweep()
        except ConfigurationError:
            return  # a cluster, where nobody can have subscribed
        self.dropped += dropped
        if dropped:
            self._log.info("topic_peers_dropped", count=dropped)
