"""Waiting for a condition, with a deadline instead of a guess."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 15.0


def wait_until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll until `condition` is truthy; fail the test when it never is."""
    ends_at = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends_at, f"not in time: {what}"
        time.sleep(0.01)
