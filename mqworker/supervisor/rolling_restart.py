"""Rolling restart: all workers are replaced, one after another, each after it has finished what it had.

By HUP the running task is waited for as long as it takes: nobody wants a deploy to end a task of an hour. A
developer who reloads does not want to wait for the code he has just mended: then patience is limited.
"""

from __future__ import annotations

from collections import deque

from mqworker.actors.mail import RetireWorker
from mqworker.supervisor.child_care import ChildCare
from mqworker.supervisor.child_plan import Role
from mqworker.supervisor.family import ChildRecord, Family, State
from mqworker.supervisor.restart_policy import Fault

# A dispatcher that was started anew has not heard of it.
_SAY_AGAIN_MS = 1_000


class RollingRestart:
    """One or no restart under way; asked for again, it begins again."""

    def __init__(self, family: Family, care: ChildCare, patience_ms: int | None) -> None:
        self._family = family
        self._care = care
        self._patience_ms = patience_ms
        self._waiting: deque[ChildRecord] = deque()
        self._leaving: ChildRecord | None = None
        self._generation = 0
        self._began_at_ms = 0
        self._said_at_ms = 0

    def begin(self, now_ms: int) -> None:
        """Replace all workers that run now."""
        self._waiting = deque(self._family.of_role(Role.WORKER))
        for record in self._waiting:
            if record.state is State.PARKED:
                record.state, record.restart_at_ms = State.WAITING, now_ms
            elif record.state is State.STARTING:
                # It may have imported half of what was there before.
                self._care.kill(record, "restarted", Fault.SPARED)
        self._next(now_ms)

    def turn(self, now_ms: int) -> None:
        """Go on to the next one when the one before is back."""
        record = self._leaving
        if record is None:
            return
        if record.generation != self._generation or record.state is State.PARKED:
            if record.state is not State.STARTING:
                self._next(now_ms)
            return
        if self._patience_ms is not None and now_ms - self._began_at_ms >= self._patience_ms:
            self._care.kill(record, "restarted before its task had ended", Fault.SPARED)
        elif now_ms - self._said_at_ms >= _SAY_AGAIN_MS:
            self._ask(record, now_ms)

    def _next(self, now_ms: int) -> None:
        self._leaving = None
        while self._waiting and self._leaving is None:
            record = self._waiting.popleft()
            if record.state is State.LIVE and record.kill_reason is None:
                self._leaving, self._generation = record, record.generation
                self._began_at_ms = now_ms
                self._ask(record, now_ms)

    def _ask(self, record: ChildRecord, now_ms: int) -> None:
        self._said_at_ms = now_ms
        self._care.tell(self._family.the(Role.DISPATCHER), RetireWorker(record.name))
