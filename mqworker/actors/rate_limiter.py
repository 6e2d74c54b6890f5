"""Rate limiter: lets limited messages into the ready line, as buckets allow and workers have room.

Owns:     how many messages the dispatcher has room for, by queue.
Receives: PermitsWanted (dispatcher), the loss of the dispatcher; Drain (supervisor).
Sends:    nothing: an admitted message is in the ready line, and the line wakes the dispatcher itself.
Never:    counts on its own: the buckets are in Redis, so a limit holds over all nodes.

A limited message waits in Redis, in the list of its limits, and occupies no worker. Tokens are taken in the
same script that lets messages in: a killed limiter has spent none for nothing and let nothing in for free.
What does not start soon after its admission comes back to its lane and waits again (decision 16): a rate is a
promise about starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail, PeerLost, PermitsWanted
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.rounds import Rounds
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options, run_actor
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.steps import LARGEST_BATCH
from mqworker.store.store import Store

DISPATCHER = "dispatcher"
ROUND_MS = 250
"""How long it may take to notice that another process filled a lane while others wait."""
IDLE_ROUND_MS = 1_500
"""While nobody waits: the first message in a lane calls the dispatcher, which tells us. Calls may be lost.
Longer than the dispatcher is silent (`ASK_IDLE_MS`): what it says is a round, and one is enough."""


class RateLimiter:
    """The actor; see the module's first lines."""

    name = "rate_limiter"

    def __init__(self, store: Store, options: WorkQueueOptions, log: Logger) -> None:
        self._store = store
        self._options = options
        self._rounds = Rounds(IDLE_ROUND_MS, log, store.quarantine)
        self._queue_by_name: dict[str, WorkQueue] = {}
        self._room_by_name: dict[str, int] = {}
        self._admitted = 0
        self.is_done = False

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002
        """Note how much room there is."""
        match mail:
            case PermitsWanted(queue, count):
                if queue not in self._queue_by_name:
                    self._queue_by_name[queue] = WorkQueue(queue, self._store, self._options)
                self._room_by_name[queue] = count
                self._rounds.hurry(0, now_ms)
            case PeerLost(peer) if peer == DISPATCHER:
                self._room_by_name.clear()  # nobody is there to start what would be let in
            case Drain():
                self.is_done = True
            case _:
                pass
        return ()

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Admit what the buckets allow; sleep until the next token."""
        soonest: list[int] = []
        roomy = [queue for name, queue in self._queue_by_name.items() if self._room_by_name.get(name, 0) > 0]
        self._rounds.hold(now_ms, [partial(self._admit, roomy, soonest)] if roomy else [])
        for next_in_ms in soonest:
            self._rounds.hurry(next_in_ms, now_ms)
        return ()

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next token, or the next round."""
        return self._rounds.due_in_ms(now_ms)

    def watched(self) -> Iterable[Watched]:
        """Nothing but mail."""
        return ()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {"rounds": self._rounds.count, "admitted": self._admitted, "room": dict(self._room_by_name)}

    def _admit(self, queues: Sequence[WorkQueue], soonest: list[int]) -> None:
        """All in one round trip; trouble with one queue is raised when the others have been served."""
        calls = [queue.calls.admit(min(self._room_by_name[queue.name], LARGEST_BATCH)) for queue in queues]
        outcomes = self._store.attempt_each([self._store.begin([call]) for call in calls])
        troubles: list[MqworkerError] = []
        for queue, outcome in zip(queues, outcomes, strict=True):
            if isinstance(outcome, MqworkerError):
                troubles.append(outcome)
                continue
            admitted, next_in_ms = outcome[0]
            self._admitted += admitted
            self._room_by_name[queue.name] -= admitted
            if next_in_ms >= 0:
                has_room = self._room_by_name[queue.name] > 0
                soonest.append(max(1, min(next_in_ms, ROUND_MS)) if has_room else ROUND_MS)
        for trouble in troubles:
            raise trouble


def main(control: Mailbox, start: ChildStart) -> int:
    """The rate limiter's process."""
    store = open_store(start, quarantine_of(start))
    limiter = RateLimiter(store, queue_options(start.settings), logger_of(start))
    return run_actor(limiter, control, start, store)
