"""How long and how often a call that was not answered is sent again: a pure decision."""

from __future__ import annotations

import random

_FIRST_PAUSE_MS = 20
_LONGEST_PAUSE_MS = 1_000


def pause_before_retry_ms(tries: int, waited_ms: int, budget_ms: int, chance: random.Random) -> int | None:
    """The pause before the next try, or None when the budget is used up. Full jitter: a crowd spreads out."""
    if waited_ms >= budget_ms:
        return None
    cap = min(_LONGEST_PAUSE_MS, _FIRST_PAUSE_MS * 2 ** min(tries, 10))
    return min(budget_ms - waited_ms, chance.randint(1, cap))
