"""A node that hung loses its leases: its runs can know, and those on an event loop are ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil

from mqworker import App
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

APP = """
import asyncio
import os
import time
from pathlib import Path
from mqworker import App, Context

app = App("shop")

def note(folder, *words):
    with open(Path(folder) / "journal", "a") as journal:
        journal.write(" ".join(map(str, words)) + "\\n")

@app.task
def ask(ctx: Context, folder: str) -> int:
    note(folder, "ask begun", ctx.attempt, ctx.is_mine())
    while ctx.attempt == 1 and ctx.is_mine():
        time.sleep(0.01)
    note(folder, "ask ended", ctx.attempt, ctx.is_mine())
    ctx.stop_if_lost()
    return ctx.attempt

@app.task
async def wait(ctx: Context, folder: str) -> int:
    note(folder, "wait begun", ctx.attempt, await ctx.ais_mine())
    try:
        if ctx.attempt == 1:
            await asyncio.sleep(600)
    except asyncio.CancelledError:
        note(folder, "wait cancelled", ctx.attempt, await ctx.ais_mine())
        raise
    return ctx.attempt

@app.task
async def poll(ctx: Context, folder: str) -> int:
    note(folder, "poll begun", ctx.attempt, ctx.is_mine())
    return ctx.attempt
"""
BEATS = {
    "MQWORKER_WORKERS": "2",
    "MQWORKER_HEARTBEAT_INTERVAL_S": "0.2",
    "MQWORKER_HEARTBEAT_TIMEOUT_S": "1.0",
}


def test_an_overtaken_run_knows_and_is_ended_where_that_is_possible() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        ask, wait = (app.task(name=f"shop.{name}")(lambda folder: folder) for name in ("ask", "wait"))
        hung, other = (RealNode(server.url, "shop:app", settings=BEATS) for _ in range(2))
        for node in (hung, other):
            (node.directory / "shop.py").write_text(APP)
        folder = hung.directory
        with hung:
            jobs = [ask.enqueue(str(folder)), wait.enqueue(str(folder))]
            wait_until(lambda: len(_journal(folder)) == 2, "both have begun")
            with other:
                _signal_all(hung, signal.SIGSTOP)
                results = [job.result(timeout=60) for job in jobs]
                _signal_all(hung, signal.SIGCONT)
                wait_until(lambda: len(_journal(folder)) >= 7, f"both know: {_journal(folder)}", 30.0)
                journal = _journal(folder)

    assert results == [2, 2]
    assert sorted(journal[:2]) == ["ask begun 1 True", "wait begun 1 True"]
    assert "ask ended 1 False" in journal
    assert "wait cancelled 1 False" in journal


def _journal(folder: Path) -> list[str]:
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def _signal_all(node: RealNode, number: signal.Signals) -> None:
    supervisor = psutil.Process(node.process.pid)
    for process in (supervisor, *supervisor.children(recursive=True)):
        os.kill(process.pid, number)
