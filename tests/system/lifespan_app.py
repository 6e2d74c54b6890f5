"""An app that holds things open and writes down when: for test_lifespan.py. LEDGER names the file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from mqworker import App, Context, Depends

app = App("held")


def note(text: str) -> None:
    """One line, in one write: several processes write there."""
    with open(os.environ["LEDGER"], "ab", buffering=0) as ledger:  # noqa: PTH123 - unbuffered
        ledger.write(f"{text} {os.getpid()}\n".encode())


@app.lifespan
def engine() -> Iterator[dict[str, Any]]:
    """Opened in each worker, unless the test says how it fails."""
    match os.environ.get("TROUBLE"):
        case "fails":
            raise OSError("no database")
        case "hangs":
            time.sleep(600)
    note("open engine")
    yield {"engine": f"engine {os.getpid()}"}
    if os.environ.get("TROUBLE") == "fails at the end":
        raise OSError("cannot be closed")
    if os.environ.get("TROUBLE") == "hangs at the end":
        time.sleep(600)
    note("close engine")


@app.lifespan
async def client() -> AsyncIterator[dict[str, Any]]:
    """On the worker's event loop."""
    note("open client")
    try:
        yield {"loop": asyncio.get_running_loop()}
    finally:
        await asyncio.sleep(0)
        note("close client")


def pool() -> Iterator[str]:
    """Lives as long as its worker."""
    note("open pool")
    yield "pool"
    note("close pool")


def session(_of: Annotated[str, Depends(pool, scope="worker")]) -> Iterator[str]:
    """Lives as long as a run."""
    note("open session")
    try:
        yield "session"
    finally:
        note("close session")


async def asession() -> AsyncIterator[str]:
    """The same, async."""
    note("open asession")
    try:
        yield "asession"
    finally:
        await asyncio.sleep(0.001)
        note("close asession")


@app.middleware
def around(ctx: Context) -> Iterator[None]:
    """Around each run."""
    note(f"open run of {ctx.task}")
    try:
        yield
    finally:
        note(f"close run of {ctx.task}")


@app.task(name="quick")
def quick(one: Annotated[str, Depends(session)], ctx: Context) -> str:
    """Says what it was given."""
    return f"{one} {ctx.state.engine}"


@app.task(name="aquick")
async def aquick(one: Annotated[str, Depends(asession)], ctx: Context) -> bool:
    """Whether it runs on the loop of the lifespan."""
    return ctx.state.loop is asyncio.get_running_loop() and one == "asession"


@app.task(name="late", timeout=0.05, retry=0)
def late(
    seconds: float, one: Annotated[str, Depends(session)], two: Annotated[str, Depends(asession)]
) -> None:
    """Runs into its soft time-out, wherever it is by then."""
    del one, two
    time.sleep(seconds)


@app.task(name="alate", timeout=0.05, retry=0)
async def alate(one: Annotated[str, Depends(session)], two: Annotated[str, Depends(asession)]) -> None:
    """The same, async."""
    del one, two
    await asyncio.sleep(30)


@app.task(name="endless", retry=0)
def endless(one: Annotated[str, Depends(session)]) -> None:
    """Until it is cancelled."""
    del one
    note("endless runs")
    time.sleep(600)


@app.task(name="aendless", retry=0)
async def aendless(one: Annotated[str, Depends(asession)]) -> None:
    """The same, async."""
    del one
    note("aendless runs")
    await asyncio.sleep(600)
