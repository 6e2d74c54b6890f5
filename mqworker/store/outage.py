"""While the server is away: who waits how long, and what is known of a call that was sent meanwhile. Pure.

One rule: nobody gives up a message because the server is away. There are two ways to wait. A *call* of a
program is sent again by the store, after growing random pauses, until its budget is used up; then the caller
gets the error. An *actor* sends once and goes on with its other work; its next turn sends again, after a
fixed pause, for as long as the outage lasts. What remains apart, and why: docs/decisions/0022-link-layer.md.
"""

from __future__ import annotations

import random

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock

DEFAULT_RETRY_FOR_MS = 10_000
"""The budget of a call: longer than a restart or a failover takes as a rule."""
FIRST_PAUSE_MS = 20
LONGEST_PAUSE_MS = 1_000

OUTAGE_PAUSE_MS = 200
"""Between two tries of an actor for which messages or callers wait: dispatcher, gateways, heartbeat."""
OUTAGE_ROUND_MS = 500
"""Between two tries of an actor that looks after queues in rounds, and of a queue of another model."""
SLOT_PAUSE_S = 0.02
"""Before a command is sent again to a cluster that is moving its slot."""


class Tries:
    """The tries of one call."""

    __slots__ = ("_began_ms", "_budget_ms", "_chance", "_clock", "_count", "_earlier")

    def __init__(self, budget_ms: int, clock: Clock, chance: random.Random) -> None:
        self._budget_ms = budget_ms
        self._clock = clock
        self._chance = chance
        self._began_ms = clock.monotonic_ms()
        self._count = 0
        self._earlier: StoreUnavailable | None = None
        """A try that may have been carried out."""

    @property
    def has_failed_once(self) -> bool:
        """Whether exactly one try failed so far."""
        return self._count == 1

    def pause_ms(self, error: StoreUnavailable) -> int:
        """The pause after a try that failed; raises the error when the budget is used up."""
        waited_ms = self._clock.monotonic_ms() - self._began_ms
        pause_ms = pause_before_retry_ms(self._count, waited_ms, self._budget_ms, self._chance)
        if pause_ms is None:
            raise self.final(error) from error
        self._earlier = error if error.maybe_executed else self._earlier
        self._count += 1
        return pause_ms

    def final(self, error: MqworkerError) -> MqworkerError:
        """The error to raise: an earlier copy of the call may have been carried out.

        Whoever is told that nothing was written does it again, under another number.
        """
        is_certain = isinstance(error, StoreFull | StoreRefused) or (
            isinstance(error, StoreUnavailable) and not error.maybe_executed
        )
        if self._earlier is None or not is_certain:
            return error
        return StoreUnavailable(f"{error}; before that: {self._earlier}", maybe_executed=True)


def pause_before_retry_ms(tries: int, waited_ms: int, budget_ms: int, chance: random.Random) -> int | None:
    """The pause before the next try, or None when the budget is used up. Full jitter: a crowd spreads out."""
    if waited_ms >= budget_ms:
        return None
    cap = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** min(tries, 10))
    return min(budget_ms - waited_ms, chance.randint(1, cap))
