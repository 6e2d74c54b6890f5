"""Recovery scanner: finds what is stuck, and puts it where it can go on.

Owns:     nothing but the time of its next round.
Receives: Drain (supervisor).
Sends:    nothing.
Never:    takes a lock: of two scanners, the one whose script comes first has done the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.offload_sweep import sweep_thread_of
from mqworker.actors.patrol import BATCH, Patrol, QueueLooks
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options, run_actor
from mqworker.log import Logger
from mqworker.model.names import QueueName
from mqworker.queues.work.steps import LARGEST_BATCH, UNUSED_LANE_MS
from mqworker.store.command import Command
from mqworker.store.script import Call
from mqworker.store.store import Store

ROUND_MS = 500
FORGET_EVERY_MS = 60_000
FORGETS_PER_S = 20
NEXT_PAGE_MS = 100

_FIRST_PAGE = ("0", "0")


class RecoveryScanner:
    """The actor; see the module's first lines."""

    name = "recovery_scanner"

    def __init__(self, store: Store, roster: QueueRoster, *, interval_ms: int, log: Logger) -> None:
        self._roster = roster
        self._rounds = Rounds(interval_ms, log, store.quarantine)
        self._looks = QueueLooks(store, roster, Patrol(interval_ms), log)
        self._forgetting = QueueLooks(store, roster, Patrol(FORGET_EVERY_MS, FORGETS_PER_S), log)
        self._busy: deque[QueueName] = deque()
        self._repair_from: dict[QueueName, tuple[str, str]] = {}
        """Where to go on in queues that hold more than one page."""
        self._forget_from: dict[QueueName, tuple[str, str]] = {}
        self._log = log
        self._reclaimed = 0
        self._buried = 0
        self._repaired = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """The only mail it acts on is Drain."""
        if isinstance(mail, Drain):
            self.is_done = True
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Look at one slice of the queues, or mend those in which something is stuck."""
        if self._rounds.hold(now_ms, [partial(self._learn_queues, now_ms)]):
            self._rounds.attempt(partial(self._look, now_ms))
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next look."""
        if self._looks.is_troubled:  # nothing else is done then, and would be due all the time
            return min(self._rounds.due_in_ms(now_ms), self._looks.patrol.due_in_ms(now_ms))
        patrols = (self._looks.patrol, self._forgetting.patrol)
        waits_ms = [self._rounds.due_in_ms(now_ms), *(patrol.due_in_ms(now_ms) for patrol in patrols)]
        return 0 if self._busy else min(waits_ms)

    def watched(self) -> Iterable[Watched]:
        """Nothing but mail."""
        return ()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "rounds": self._rounds.count,
            "reclaimed": self._reclaimed,
            "buried": self._buried,
            "repaired": self._repaired,
        }

    def _look(self, now_ms: int) -> None:
        if not self._busy:
            names = self._looks.patrol.take(now_ms)
            found = self._looks.glance(names, self._questions, now_ms)
            self._busy.extend(name for name, signs in found.items() if any(signs))
        if not self._looks.is_troubled:
            self._scan(now_ms)
        if not self._looks.is_troubled:
            self._forget(now_ms)

    def _learn_queues(self, now_ms: int) -> None:
        self._looks.refresh(now_ms)
        self._forgetting.patrol.add(self._roster)

    def _questions(self, name: QueueName) -> tuple[Command, ...]:
        """Without any of these there is neither a lease that can end nor an entry without its other half."""
        prefix = f"{self._roster.prefix}{{{name}}}:"
        pairs = (f"{prefix}leases", f"{prefix}held:", f"{prefix}delayed", f"{prefix}parcels")
        return ("EXISTS", *pairs), ("HEXISTS", f"{prefix}meta", "holes")

    def _scan(self, now_ms: int) -> None:
        some = [self._busy.popleft() for _ in range(min(BATCH, len(self._busy)))]
        for name, (reclaim, repair) in self._looks.run(
            {name: self._calls(name) for name in some}, now_ms
        ).items():
            (reclaimed, buried), (repaired, *cursors) = reclaim, repair
            if reclaimed + buried >= LARGEST_BATCH:
                self._looks.patrol.hurry(name, now_ms)
            _note_page(self._repair_from, name, cursors)
            self._reclaimed, self._buried = self._reclaimed + reclaimed, self._buried + buried
            self._repaired += repaired
            if reclaimed or buried or repaired:
                self._log.warning(
                    "queue_recovered", queue=name, reclaimed=reclaimed, buried=buried, repaired=repaired
                )

    def _calls(self, name: QueueName) -> Sequence[Call[Any]]:
        calls = self._roster.calls(name)
        return calls.reclaim(LARGEST_BATCH), calls.repair(*self._repair_from.get(name, _FIRST_PAGE))

    def _forget(self, now_ms: int) -> None:
        """Drop what is remembered longer than needed, a page at a time."""
        names = self._forgetting.patrol.take(now_ms)
        calls = {name: [self._forget_call(name)] for name in names}
        for name, (cursors,) in self._forgetting.run(calls, now_ms).items():
            if _note_page(self._forget_from, name, cursors):
                self._forgetting.patrol.hurry(name, now_ms + NEXT_PAGE_MS)

    def _forget_call(self, name: QueueName) -> Call[tuple[str, str]]:
        cursors = self._forget_from.get(name, _FIRST_PAGE)
        return self._roster.calls(name).forget(UNUSED_LANE_MS, *cursors)


def _note_page(
    page_by_name: dict[QueueName, tuple[str, str]], name: QueueName, cursors: Sequence[str]
) -> bool:
    """Where to go on next time; whether there is more."""
    first, second = cursors
    if first or second:
        page_by_name[name] = (first, second)
    else:
        page_by_name.pop(name, None)
    return bool(first or second)


def main(control: Mailbox, start: ChildStart) -> int:
    """The recovery scanner's process."""
    store = open_store(start, quarantine_of(start))
    roster = QueueRoster(store, queue_options(start.settings))
    scanner = RecoveryScanner(store, roster, interval_ms=ROUND_MS, log=logger_of(start))
    sweep = sweep_thread_of(start)
    if sweep is not None:
        sweep.start()
    return run_actor(scanner, control, start, store)
