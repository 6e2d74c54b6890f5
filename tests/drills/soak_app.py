"""The application of the soak: one small task of every kind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from mqworker import App, Context, Rate, Retry
from mqworker.settings import Settings

QUEUE = "soak"
LIMITED_QUEUE = "soak-limited"
RESULT_TTL_S = 60.0
"""Longer than any answer takes, on a machine that is overloaded too."""
_WORK_S = 0.0005


def build_app(settings: Settings | None = None) -> tuple[App, dict[str, Any]]:
    """An app and its tasks by name."""
    app = App("soak", settings=settings)
    tasks: dict[str, Any] = {}
    for function, options in (
        (quick, {}),
        (work, {}),
        (fetch, {}),
        (add, {}),
        (retrying, {"retry": Retry(max=2, first=0.05, backoff=1.0)}),
        (failing, {"retry": Retry(max=1, first=0.05)}),
        (limited, {"rate": Rate("400/s", burst=40), "queue": LIMITED_QUEUE}),
        (once, {"delivery": "at_most_once"}),
    ):
        name = function.__name__
        usual: dict[str, Any] = {"queue": QUEUE, "name": name, "result_ttl": RESULT_TTL_S}
        tasks[name] = app.task(**{**usual, **options})(function)
    return app, tasks


def quick(number: int) -> int:
    """Nothing but its way through the system."""
    return number


def work(number: int) -> int:
    """Half a millisecond."""
    time.sleep(_WORK_S)
    return number


async def fetch(number: int) -> int:
    """A wait on the event loop."""
    await asyncio.sleep(0.02)
    return number


def add(one: int, other: int = 1) -> int:
    """A step of a workflow."""
    return one + other


def retrying(ctx: Context, number: int) -> int:
    """Succeeds the second time."""
    if ctx.failures == 0:
        raise ConnectionError(str(number))
    return number


def failing(number: int) -> int:
    """Never succeeds."""
    raise ValueError(str(number))


def limited(number: int) -> int:
    """Needs a permit."""
    return number


def once(number: int) -> int:
    """May be lost, never runs twice."""
    return number


app, _ = build_app()
