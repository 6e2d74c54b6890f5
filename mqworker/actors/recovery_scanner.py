"""Recovery scanner: finds what is stuck, and puts it where it can go on.

Owns:     nothing but the time of its next round.
Receives: Drain (supervisor).
Sends:    nothing.
Never:    takes a lock: of two scanners, the one whose script comes first has done the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.rounds import Rounds
from mqworker.actors.wiring import logger_of, open_store, queue_options, run_actor
from mqworker.log import Logger
from mqworker.queues.work.queue import WorkQueue

ROUND_MS = 500

_FORGET_EVERY = 120


class RecoveryScanner:
    """The actor; see the module's first lines."""

    name = "recovery_scanner"

    def __init__(self, roster: QueueRoster, *, interval_ms: int, log: Logger) -> None:
        self._roster = roster
        self._rounds = Rounds(interval_ms, log)
        self._log = log
        self._reclaimed = 0
        self._buried = 0
        self._repaired = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """Only the end concerns it."""
        if isinstance(mail, Drain):
            self.is_done = True
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Go through all queues, once per interval."""
        steps = [
            partial(self._roster.refresh, now_ms),
            *(partial(self._scan, queue) for queue in self._roster),
        ]
        self._rounds.hold(now_ms, steps)
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next round."""
        return self._rounds.due_in_ms(now_ms)

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

    def _scan(self, queue: WorkQueue) -> None:
        reclaimed, buried = queue.reclaim()
        repaired = queue.repair()
        if self._rounds.count % _FORGET_EVERY == 0:
            queue.forget()
        self._reclaimed, self._buried = self._reclaimed + reclaimed, self._buried + buried
        self._repaired += repaired
        if reclaimed or buried or repaired:
            self._log.warning(
                "queue_recovered", queue=queue.name, reclaimed=reclaimed, buried=buried, repaired=repaired
            )


def main(control: Mailbox, start: ChildStart) -> int:
    """The recovery scanner's process."""
    roster = QueueRoster(open_store(start), queue_options(start.settings))
    return run_actor(RecoveryScanner(roster, interval_ms=ROUND_MS, log=logger_of(start)), control, start)
