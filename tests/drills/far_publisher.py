"""A publisher in a process of its own, in another network namespace than the drill: one call at a time.

Run as `python -m tests.drills.far_publisher <redis url> <ledger folder> <seconds>`; it publishes for so long.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mqworker.errors import StoreUnavailable
from mqworker.settings import Settings
from tests.drills.drill_app import build_app
from tests.drills.node import EVENTS_KEPT
from tests.support.ledger import LedgerWriter

PAUSE_S = 0.02


def main(url: str, folder: str, seconds: str) -> None:
    """Publish until the time is over, noting what was tried and what came of it."""
    app, tasks = build_app(Settings(redis_url=url, events_kept=EVENTS_KEPT))
    ledger = LedgerWriter(Path(folder))
    ends_at_s, count = time.monotonic() + float(seconds), 0
    while time.monotonic() < ends_at_s:
        for name in ("once", "work"):
            count += 1
            key = f"far{os.getpid()}-{name}-{count}"
            ledger.note("T", key)
            try:
                job = tasks[name].enqueue(key)
            except StoreUnavailable:
                ledger.note("U", key)
                continue
            ledger.note("P", key, job.id)
        time.sleep(PAUSE_S)
    app.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
