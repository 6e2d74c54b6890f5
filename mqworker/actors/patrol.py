"""The patrol: which queues to look at now, and looking at many of them in one round trip.

Every queue is looked at once per interval, as long as there are not too many: beyond that it takes longer,
and costs no more. What is known to be due, or was called for, comes before its turn. A turn of an actor looks
at one slice, so that pings are answered in between. Queues whose server does not answer are left out until
one of them, tried now and then, is there again: a shard that hangs holds up nobody else's queues for long.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from mqworker.actors.queue_roster import QueueRoster
from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.names import QueueName
from mqworker.store.command import Command
from mqworker.store.outage import OUTAGE_ROUND_MS
from mqworker.store.script import Call
from mqworker.store.store import Store

LOOKS_PER_S = 500
"""A look at an idle queue takes about five microseconds: a quarter of a percent of a core for each actor."""
SLICE = 500
LONGEST_TICK_MS = 1_000
"""Looks that are seldom are spread evenly over their interval."""
BATCH = 100
"""How many queues one round trip runs scripts for."""


class Patrol:
    """The order of looks. Pure."""

    def __init__(self, interval_ms: int, looks_per_s: float = LOOKS_PER_S) -> None:
        self._interval_ms = interval_ms
        self._tick_ms = min(interval_ms, LONGEST_TICK_MS)
        self._most_per_tick = looks_per_s * self._tick_ms / 1000
        self._names: list[QueueName] = []
        self._known: set[QueueName] = set()
        self._next = 0
        self._left = 0.0
        """How many of the usual looks are due now."""
        self._tick_at_ms = 0
        self._urgent: list[tuple[int, QueueName]] = []
        self._urgent_at_ms: dict[QueueName, int] = {}
        self._away: dict[QueueName, None] = {}
        self._probe_at_ms = 0

    @property
    def is_slow(self) -> bool:
        """Whether there are too many queues to look at each once per interval."""
        return self._per_tick > self._most_per_tick

    @property
    def _per_tick(self) -> float:
        return len(self._names) * self._tick_ms / self._interval_ms

    def add(self, names: Iterable[QueueName], look_at_ms: int | None = None) -> None:
        """Queues that may be new; each is looked at then, or when its turn comes."""
        for name in names:
            if name not in self._known:
                self._known.add(name)
                self._names.append(name)
                if look_at_ms is not None:
                    self.hurry(name, look_at_ms)

    def hurry(self, name: QueueName, at_ms: int) -> None:
        """Look at a queue then, at the latest."""
        if at_ms < self._urgent_at_ms.get(name, at_ms + 1):
            self._urgent_at_ms[name] = at_ms
            heapq.heappush(self._urgent, (at_ms, name))

    def hurry_all(self) -> None:
        """Look at all of them now, one slice after the other."""
        self._left = len(self._names)

    def take(self, now_ms: int) -> list[QueueName]:
        """What to look at in this turn."""
        if now_ms >= self._tick_at_ms:
            self._tick_at_ms = now_ms + self._tick_ms
            # A rest below one is carried over, a backlog is not: what could not be kept up with is let go.
            self._left = max(self._left, self._left % 1 + min(self._per_tick, self._most_per_tick))
        chosen: dict[QueueName, None] = {}
        while len(chosen) < SLICE and self._urgent and self._urgent[0][0] <= now_ms:
            at_ms, name = heapq.heappop(self._urgent)
            if self._urgent_at_ms.get(name) == at_ms:
                del self._urgent_at_ms[name]
                chosen[name] = None
        count = min(int(self._left), SLICE - len(chosen), len(self._names))
        for _ in range(count):
            chosen[self._names[self._next % len(self._names)]] = None
            self._next += 1
        self._left -= count
        if self._away:
            chosen = {name: None for name in chosen if name not in self._away}
            if now_ms >= self._probe_at_ms:
                self._probe_at_ms = now_ms + OUTAGE_ROUND_MS
                chosen[next(iter(self._away))] = None
        return list(chosen)

    def due_in_ms(self, now_ms: int) -> int:
        """Until there is something to look at."""
        if self._left >= 1:
            return 0
        wait_ms = self._tick_at_ms - now_ms
        if self._urgent:
            wait_ms = min(wait_ms, self._urgent[0][0] - now_ms)
        return max(0, wait_ms)

    def is_away(self, name: QueueName) -> bool:
        """Whether its server did not answer when it was asked last."""
        return name in self._away

    def note_away(self, name: QueueName, now_ms: int) -> bool:
        """Note that its server did not answer; True if it answered before."""
        if not self._away:
            self._probe_at_ms = now_ms + OUTAGE_ROUND_MS
        is_news = not self._away
        self._away[name] = None
        return is_news

    def note_answer(self, name: QueueName, now_ms: int) -> bool:
        """Its server answered; whether it was away before."""
        if name not in self._away:
            return False
        for each in self._away:
            self.hurry(each, now_ms)
        self._away.clear()
        return True


class QueueLooks:
    """Looks at the queues of a roster, and runs scripts on them; the trouble of each is its own."""

    def __init__(self, store: Store, roster: QueueRoster, patrol: Patrol, log: Logger) -> None:
        self.patrol = patrol
        self.is_troubled = False
        """Whether a server did not answer in the latest round trip, which may have taken long."""
        self._store = store
        self._roster = roster
        self._log = log

    def refresh(self, now_ms: int, *, at_once: bool = False) -> None:
        """Read the registry, if it is time to or must be."""
        self.patrol.add(self._roster.refresh(now_ms, at_once=at_once), now_ms)

    def glance(
        self, names: Sequence[QueueName], commands_of: Callable[[QueueName], Sequence[Command]], now_ms: int
    ) -> dict[QueueName, list[Any]]:
        """Ask the same few things of many queues, in one round trip; the replies of those that answered."""
        commands: list[Command] = []
        keys: list[str] = []
        per_queue = 0
        for name in names:
            asked = commands_of(name)
            per_queue = len(asked)
            commands += asked
            keys += [f"{self._roster.prefix}{{{name}}}"] * per_queue
        if not commands:
            return {}
        replies = iter(self._store.send_each(commands, keys))
        return self._sorted({name: list(islice(replies, per_queue)) for name in names}, now_ms)

    def run(
        self, calls_by_name: Mapping[QueueName, Sequence[Call[Any]]], now_ms: int
    ) -> dict[QueueName, list[Any]]:
        """Run a few scripts on each queue, in one round trip; the results of those that answered."""
        exchanges = [self._store.begin(calls) for calls in calls_by_name.values()]
        if not exchanges:
            return {}
        outcomes = self._store.attempt_each(exchanges)
        return self._sorted(
            {
                name: [outcome] if isinstance(outcome, MqworkerError) else outcome
                for name, outcome in zip(calls_by_name, outcomes, strict=True)
            },
            now_ms,
        )

    def _sorted(self, replies_by_name: dict[QueueName, list[Any]], now_ms: int) -> dict[QueueName, list[Any]]:
        answered: dict[QueueName, list[Any]] = {}
        self.is_troubled = False
        for name, replies in replies_by_name.items():
            trouble = next((reply for reply in replies if isinstance(reply, MqworkerError)), None)
            match trouble:
                case None:
                    answered[name] = replies
                    if self.patrol.note_answer(name, now_ms):
                        self._log.info("store_resumed", queue=name)
                case StoreUnavailable():
                    self.is_troubled = True
                    if self.patrol.note_away(name, now_ms):
                        self._log.warning("store_unavailable", queue=name, reason=str(trouble))
                case ConfigurationError():
                    raise trouble
                case _:  # what it holds cannot be read: the others are none the worse for it
                    self._store.quarantine.note("queue", name, trouble)
        return answered
