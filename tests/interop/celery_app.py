"""Our side of a project that moves over from Celery: the same names of tasks, on Celery's own queue."""

from __future__ import annotations

import json
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

from mqworker import App, Context, Retry
from mqworker.queues.catalogue import from_plain
from tests.support.ledger import LedgerWriter


@cache
def _ledger() -> LedgerWriter:
    return LedgerWriter(Path(os.environ["MQW_TEST_LEDGER"]), "ours")


def note(kind: str, *words: object) -> None:
    """One line, whole, whoever writes beside us."""
    _ledger().note(kind, *words)


app = App("shop")
if "MQW_TEST_MODEL" in os.environ:
    app.queue("celery", model=from_plain(json.loads(os.environ["MQW_TEST_MODEL"])))


# Any: whatever Celery's side sends.
@app.task(name="shop.count", queue="celery")
def count(ctx: Context, number: int, *args: Any, pause: float = 0.0) -> int:  # noqa: ANN401
    """Begins, takes a while, ends."""
    note(
        "begun", number, os.getpid(), "ours", ctx.attempt, json.dumps(ctx.headers).replace(" ", ""), len(args)
    )
    time.sleep(pause)
    note("ended", number, os.getpid(), "ours")
    return number


@app.task(name="shop.add", queue="celery")
def add(one: int, other: int) -> int:
    """Adds."""
    return one + other


@app.task(name="shop.echo", queue="celery")
def echo(value: Any) -> Any:  # noqa: ANN401 - see above
    """What it was given."""
    return value


@app.task(name="shop.fail", queue="celery", retry=0)
def fail(word: str) -> None:
    """Never succeeds."""
    raise ValueError(word)


@app.task(name="shop.flaky", queue="celery", retry=Retry(max=3, first=0.05))
def flaky(ctx: Context) -> int:
    """Succeeds the third time."""
    if ctx.attempt < 3:
        raise ConnectionError("try again")
    return ctx.attempt


@app.task(name="shop.told", queue="celery")
def told(task_id: str) -> None:
    """Is told the id of what failed."""
    note("told", task_id)
