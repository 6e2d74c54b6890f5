"""Accidents are written down: what a worker ran when it died, and what became of it.

Best effort, and never in the way: what cannot be written now is kept, a few at the most, and tried again.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Mapping, Sequence

from mqworker.actors.dispatcher.queue import STORE_TROUBLE
from mqworker.actors.dispatcher.workers import WorkerState
from mqworker.log import Logger
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Bury, Crash, RetryAt, Settlement, Suspect
from mqworker.queues.work.accidents import MOST_RUNS, Accident, LostRun, note_call
from mqworker.store.store import Store

TRY_AGAIN_MS = 1_000
MOST_PENDING = 100

_FATE_BY_KIND = {Crash: "crashed", Suspect: "suspected", RetryAt: "timed out", Bury: "buried"}
_BEGUN = frozenset(_FATE_BY_KIND.values())


class AccidentLog:
    """What one dispatcher has to write down."""

    def __init__(self, store: Store, namespace: str, node: str, log: Logger) -> None:
        self._store = store
        self._namespace = namespace
        self._node = node
        self._log = log
        self._pending: deque[tuple[str, Accident]] = deque(maxlen=MOST_PENDING)
        self._next_ms = 0

    def note(
        self, settlements_by_queue: Mapping[str, Sequence[Settlement]], worker: WorkerState, cause: str
    ) -> None:
        """A worker died; what it had not begun is no accident."""
        runs = [
            _run(queue, each) for queue, settlements in settlements_by_queue.items() for each in settlements
        ]
        begun = [run for run in runs if run.fate in _BEGUN]
        if begun:
            accident = Accident(
                self._node,
                worker.name,
                cause,
                worker.rss_bytes,
                tuple(begun[:MOST_RUNS]),
                len(runs) - min(len(begun), MOST_RUNS),
            )
            # The mark makes a repetition the same accident.
            self._pending.append((secrets.token_hex(8), accident))

    def write(self, now_ms: int) -> None:
        """Write down what there is, one after the other."""
        while self._pending and now_ms >= self._next_ms:
            try:
                # Once, without patience: the dispatcher has other things to do while Redis is away.
                self._store.attempt(self._store.begin([note_call(self._namespace, *self._pending[0])]))
            except STORE_TROUBLE as error:
                self._next_ms = now_ms + TRY_AGAIN_MS
                self._log.debug("accident_waits", reason=str(error))
                return
            self._pending.popleft()


def _run(queue: str, settlement: Settlement) -> LostRun:
    delivery = settlement.delivery
    fate = _FATE_BY_KIND.get(type(settlement), "released")
    reason = settlement.reason if isinstance(settlement, Bury) else ""
    if not isinstance(delivery, Delivery):
        return LostRun(queue, "?", "?", 0, fate, reason)
    return LostRun(queue, delivery.id, delivery.task, delivery.attempt, fate, reason)
