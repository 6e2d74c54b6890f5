"""An application whose queue is of another model; its tasks write down what they do.

The node takes the model from its environment; a test makes the same application for itself, to enqueue.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mqworker import App, AsyncTask, Context, Retry, Task
from mqworker.queues.catalogue import Model, from_plain
from tests.support.ledger import LedgerWriter

QUEUE = "line"
MODEL_VARIABLE, LEDGER_VARIABLE = "MQW_TEST_MODEL", "MQW_TEST_LEDGER"


def note(kind: str, *words: object) -> None:
    """One line, whole, whoever writes beside us."""
    _ledger().note(kind, *words)


@cache
def _ledger() -> LedgerWriter:
    path = Path(os.environ[LEDGER_VARIABLE])
    return LedgerWriter(path.parent, path.stem)


def count(number: int, pause: float = 0.0) -> None:
    """Begins, takes a while, ends."""
    note("begun", number)
    time.sleep(pause)
    note("ended", number)


def tell(ctx: Context, word: str) -> str:
    """What a task can know of its delivery."""
    ctx.progress(1, 2)
    note("told", word, ctx.attempt, ctx.headers.get("from", "-"), ctx.id, ctx.is_cancelled)
    return word


def fail(ctx: Context, word: str) -> None:
    """Never succeeds."""
    note("failed", word, ctx.attempt)
    raise ValueError(word)


def hog(seconds: float) -> None:
    """Holds the interpreter: no other thread of this process has a turn meanwhile, or hardly one."""
    note("begun", "hog")
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        sum(range(3_000_000))
    note("ended", "hog")


def hang() -> None:
    """Is ended by its hard time-out."""
    note("begun", "hang")
    time.sleep(60)


def die() -> None:
    """Kills its worker, every time."""
    note("begun", "die")
    os.kill(os.getpid(), 9)


async def soar(number: int) -> None:
    """Runs on the event loop."""
    note("ended", number)


@dataclass(frozen=True)
class Models:
    """The application and its tasks."""

    app: App
    count: Task[[int, float], None]
    tell: Task[[str], str]
    fail: Task[[str], None]
    hog: Task[[float], None]
    hang: Task[[], None]
    die: Task[[], None]
    soar: AsyncTask[[int], None]


def make_models(model: Model, redis_url: str | None = None) -> Models:
    """The application on a queue of this model."""
    app = App("models", redis_url=redis_url)
    app.queue(QUEUE, model=model)

    # Any: each function has its own types, which `Models` tells.
    def task(function: Any, **options: Any) -> Any:  # noqa: ANN401
        return app.task(queue=QUEUE, name=function.__name__, **options)(function)

    return Models(
        app,
        count=task(count),
        tell=task(tell),
        fail=task(fail, retry=Retry(max=1, first=0.05)),
        hog=task(hog, retry=0),
        hang=task(hang, timeout=60, hard_timeout=0.5, retry=0),
        die=task(die),
        soar=task(soar),
    )


if MODEL_VARIABLE in os.environ:
    app = make_models(from_plain(json.loads(os.environ[MODEL_VARIABLE]))).app
