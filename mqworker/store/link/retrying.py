"""How long and how often a call that was not answered is sent again, and what is known then. Pure."""

from __future__ import annotations

import random

from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable

_FIRST_PAUSE_MS = 20
_LONGEST_PAUSE_MS = 1_000


def pause_before_retry_ms(tries: int, waited_ms: int, budget_ms: int, chance: random.Random) -> int | None:
    """The pause before the next try, or None when the budget is used up. Full jitter: a crowd spreads out."""
    if waited_ms >= budget_ms:
        return None
    cap = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2 ** min(tries, 10))
    return min(budget_ms - waited_ms, chance.randint(1, cap))


def in_view_of(earlier: StoreUnavailable | None, error: MqworkerError) -> MqworkerError:
    """The error to raise for a call that was sent before: an earlier copy of it may have been carried out.

    Whoever is told that nothing was written does it again, under another number.
    """
    is_certain = isinstance(error, StoreFull | StoreRefused) or (
        isinstance(error, StoreUnavailable) and not error.maybe_executed
    )
    if earlier is None or not is_certain:
        return error
    return StoreUnavailable(f"{error}; before that: {earlier}", maybe_executed=True)
