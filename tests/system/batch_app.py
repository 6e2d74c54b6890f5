"""An application whose tasks take batches, and write down each call of theirs: pid, task and rows."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from mqworker import App, Batch, BatchContext
from mqworker.errors import BatchFailed

app = App("batches")
POISON = 13


def write(task: str, rows: Sequence[object]) -> None:
    """One line, written at once: a kill leaves it whole or not there."""
    line = json.dumps([os.getpid(), task, *rows]) + "\n"
    with Path(os.environ["BATCH_LEDGER"]).open("ab", buffering=0) as ledger:
        ledger.write(line.encode())


@app.task(queue="rows", batch=Batch(size=50, wait=0.05))
def load(rows: list[int]) -> list[int]:
    """Takes a moment, so that kills find it running."""
    write("load", rows)
    time.sleep(0.01)
    return [2 * row for row in rows]


@app.task(queue="rows", batch=Batch(size=50, wait=0.05))
async def aload(rows: list[int]) -> list[int]:
    """The same on the event loop."""
    write("aload", rows)
    await asyncio.sleep(0.01)
    return [2 * row for row in rows]


@app.task(queue="poison", batch=Batch(size=500, wait=0.5), max_crashes=3)
def poisoned(rows: list[int]) -> list[int]:
    """One row ends its worker."""
    write("poisoned", rows)
    if POISON in rows:
        os.kill(os.getpid(), signal.SIGKILL)
    return rows


@app.task(queue="keyed", batch=Batch(size=100, wait=0.3, by="{tenant}"))
def by_tenant(rows: list[dict[str, str]]) -> None:
    """Rows of one tenant at a time."""
    write("by_tenant", [row["tenant"] for row in rows])


@app.task(queue="partial", batch=Batch(size=20, wait=0.3), retry=0)
def partial(rows: list[int]) -> list[str]:
    """Odd rows fail."""
    write("partial", rows)
    odd = {at: ValueError(f"row {row}") for at, row in enumerate(rows) if row % 2}
    raise BatchFailed(odd, results=[f"row {row}" for row in rows])


@app.task(queue="slow", batch=Batch(size=3, wait=30))
def slow(ctx: BatchContext, rows: list[str]) -> list[str]:
    """Runs until it is told to go on, and says who was cancelled."""
    write("slow", rows)
    while not Path(os.environ["BATCH_LEDGER"] + ".go").exists() and not ctx.is_cancelled:
        time.sleep(0.02)
    ctx.stop_if_cancelled()
    return [f"{row} {each.attempt} {each.is_cancelled}" for row, each in zip(rows, ctx.members, strict=True)]


@app.task(queue="patient", batch=Batch(size=1_000, wait=60))
def patient(rows: list[int]) -> None:
    """Waits long for others."""
    write("patient", rows)


@app.task(queue="patient")
def plain(number: int) -> int:
    """Does not wait behind those that are gathered."""
    return number
