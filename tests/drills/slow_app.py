"""One task that takes long and of which one runs at a time: whoever is next begins when the slot is free."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mqworker import App
from mqworker.settings import Settings
from mqworker.tasks.task import Task
from tests.drills.drill_app import LEDGER_VARIABLE
from tests.support.ledger import LedgerWriter

_ledger = LedgerWriter(Path(os.environ.get(LEDGER_VARIABLE, ".")))


def build_app(settings: Settings | None = None) -> tuple[App, Task[..., Any]]:
    """An app, and its task."""
    app = App("slow", settings=settings)
    return app, app.task(name="slow", queue="slow", max_running=1, max_crashes=None)(slow)


def slow(key: str) -> None:
    """Notes its first line, then takes a minute."""
    _ledger.note("B", key, os.getpid(), time.monotonic_ns() // 1_000)
    time.sleep(60)


app, _ = build_app()
