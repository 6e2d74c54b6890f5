"""The application of the drills about rates and clocks: tasks that note the instant of their first line."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from mqworker import App, Context, Rate
from mqworker.settings import Settings
from tests.drills.drill_app import LEDGER_VARIABLE
from tests.support.ledger import LedgerWriter

QUEUE = "rates"
TIGHT = Rate("100/s", burst=50)
PAIR = (Rate("200/s", burst=100), Rate("60/s", key="{tenant}", burst=30))

_WORK_S = 0.002

_ledger = LedgerWriter(Path(os.environ.get(LEDGER_VARIABLE, ".")))


def build_app(settings: Settings | None = None) -> tuple[App, dict[str, Any]]:
    """An app, and its tasks by name. Any: tasks of any signature."""
    app = App("rates", settings=settings)
    usual: dict[str, Any] = {"queue": QUEUE, "result_ttl": 0}
    app.schedule(every=1, catch_up="all", name="tick")(app.task(name="tick", **usual)(tick))
    return app, {
        "limited": app.task(name="limited", rate=TIGHT, **usual)(limited),
        "limited_async": app.task(name="limited_async", rate=TIGHT, **usual)(limited_async),
        "keyed": app.task(name="keyed", rate=PAIR, **usual)(keyed),
        "free": app.task(name="free", **usual)(free),
    }


def limited(ctx: Context, key: str) -> None:
    """Needs a permit."""
    _note(ctx, key)
    time.sleep(_WORK_S)


async def limited_async(ctx: Context, key: str) -> None:
    """The same on an event loop."""
    _note(ctx, key)


def keyed(ctx: Context, key: str, tenant: str) -> None:  # noqa: ARG001 - the rate's key
    """Needs two permits."""
    _note(ctx, key)
    time.sleep(_WORK_S)


def free(ctx: Context, key: str) -> None:
    """Needs none."""
    _note(ctx, key)
    time.sleep(_WORK_S)


def tick(ctx: Context) -> None:
    """Comes every second."""
    _note(ctx, ctx.id)


def _note(ctx: Context, key: str) -> None:
    _ledger.note("E", key, ctx.id, ctx.attempt, ctx.fence, os.getpid(), time.monotonic_ns() // 1_000)


app, _ = build_app()
