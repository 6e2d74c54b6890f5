"""Tasks that only Celery knows: their messages are left in its lists for a while, then one is tried again.

A claim is told their names. In a list a message is only text, so the name must be found there by a pattern;
where the pattern does not find the same name as the reader of messages, nothing is left.
"""

from __future__ import annotations

import re
from typing import ClassVar

from mqworker.model.clock import Clock
from mqworker.model.instant import After, Instant

# The same as in scripts/claim.lua.
_NAME = re.compile(rb'"task"\s*:\s*"([^"\\]+)"')
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f-\U0010ffff]+')


class TasksLeft:
    """Names, each with the instant until which it is left alone."""

    PAUSE_MS: ClassVar[int] = 30_000
    MOST: ClassVar[int] = 1_000

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms: dict[str, int] = {}

    def names(self) -> list[str]:
        """Those that are left alone now."""
        now_ms = self._clock.monotonic_ms()
        self._until_ms = {name: until for name, until in self._until_ms.items() if until > now_ms}
        return list(self._until_ms)

    def note_task(self, name: str, due: Instant) -> bool:
        """Leave a task alone until then; False where a list does not show its name, or there are too many."""
        if not _PLAIN.fullmatch(name) or (len(self._until_ms) >= self.MOST and name not in self._until_ms):
            return False
        pause_ms = due.ms if isinstance(due, After) else self.PAUSE_MS
        self._until_ms[name] = self._clock.monotonic_ms() + pause_ms
        return True

    def note(self, raw: bytes) -> bool:
        """The same for the task of a message, whatever it is called."""
        found = _NAME.search(raw)
        if found is None:
            return False
        return self.note_task(found[1].decode(errors="replace"), After(self.PAUSE_MS))
