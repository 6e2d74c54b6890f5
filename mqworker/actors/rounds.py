"""What the actors that look after queues share: rounds at intervals, and patience while Redis is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger

OUTAGE_PAUSE_MS = 500


class Rounds:
    """Calls a round when it is due; trouble with the server ends that round, or a step of it, and no more."""

    def __init__(self, interval_ms: int, log: Logger) -> None:
        self._interval_ms = interval_ms
        self._log = log
        self._next_ms = 0
        self._is_down = False
        self.count = 0

    def due_in_ms(self, now_ms: int) -> int:
        """How long until the next round."""
        return max(0, self._next_ms - now_ms)

    def hurry(self, in_ms: int, now_ms: int) -> None:
        """Hold the next round so soon at the latest."""
        self._next_ms = min(self._next_ms, now_ms + in_ms)

    def hold(self, now_ms: int, steps: Iterable[Callable[[], object]]) -> bool:
        """Do all steps if it is time; each on its own, so that one broken queue does not harm the others.

        Each is done before the next one is asked for. False when the server did not answer: that may have
        taken long, and whoever calls should answer pings before he asks it anything else.
        """
        if now_ms < self._next_ms:
            return True
        self._next_ms = now_ms + self._interval_ms
        for step in steps:
            try:
                step()
            except (StoreRefused, StoreFull) as error:
                self._log.error("queue_refused", reason=str(error))
            except StoreUnavailable as error:
                if not self._is_down:
                    self._log.warning("store_unavailable", reason=str(error))
                self._is_down = True
                self._next_ms = now_ms + OUTAGE_PAUSE_MS
                return False
        if self._is_down:
            self._is_down = False
            self._log.info("store_resumed")
        self.count += 1
        return True
