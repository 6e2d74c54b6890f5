"""What the actors that look after queues share: rounds at intervals, and patience while Redis is away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from mqworker.errors import ConfigurationError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.quarantine import Quarantine
from mqworker.store.outage import OUTAGE_ROUND_MS


class Rounds:
    """Calls a round when it is due; trouble with the server ends that round, or a step of it, and no more.

    A step that fails over what it reads is skipped and noted in the quarantine, and is tried again in the
    next round: one bad entry costs a step of one queue and neither the actor nor its other queues.
    """

    def __init__(self, interval_ms: int, log: Logger, quarantine: Quarantine | None = None) -> None:
        self._quarantine = quarantine or Quarantine()
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
        taken long, and the caller should answer pings before asking it anything else.
        """
        if now_ms < self._next_ms:
            return True
        self._next_ms = now_ms + self._interval_ms
        for step in steps:
            if not self.attempt(step):
                self._next_ms = now_ms + OUTAGE_ROUND_MS
                return False
        if self._is_down:
            self._is_down = False
            self._log.info("store_resumed")
        self.count += 1
        return True

    def attempt(self, step: Callable[[], object]) -> bool:
        """Do one step; False when the server did not answer."""
        try:
            step()
        except ConfigurationError:
            raise  # nothing that a round could step over
        except StoreUnavailable as error:
            if not self._is_down:
                self._log.warning("store_unavailable", reason=str(error))
            self._is_down = True
            return False
        except (StoreRefused, StoreFull) as error:
            self._quarantine.note("step", _name_of(step), error)
        # Broad, because a reader that nobody foresaw to fail must not end the actor: it would fail again
        # after each restart, over the same entry.
        except Exception as error:  # noqa: BLE001 - see above
            if self._quarantine.note("step", _name_of(step), error):
                self._log.exception("step_failed", step=_name_of(step))
        return True


def _name_of(step: Callable[[], object]) -> str:
    """What is done, and to which queue."""
    function = step.func if isinstance(step, partial) else step
    parts = step.args if isinstance(step, partial) else ()
    queues = [part.name for part in parts if isinstance(getattr(part, "name", None), str)]
    return " ".join([getattr(function, "__name__", "step").strip("_").replace("_", " "), *queues])
