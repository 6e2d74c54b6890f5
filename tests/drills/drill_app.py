"""The application of the drills: tasks that note in the ledger that they run, and some that die of it.

A node imports `app`; a drill builds its own with `build_app`, on the server at hand.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, TypeAlias

from mqworker import App, Context, Rate, Retry
from mqworker.actors.actor import ActorLoop
from mqworker.settings import Settings
from tests.support.ledger import LedgerWriter

LEDGER_VARIABLE = "DRILL_LEDGER"
QUEUE = "drill"
ONCE_QUEUE = "once"

_WORK_S = 0.001
_SHORT_S = 0.3
_FOREVER_S = 600.0
_GARBAGE = b"\x00nothing but garbage, and more of it"

_ledger = LedgerWriter(Path(os.environ.get(LEDGER_VARIABLE, ".")))


AnyTask: TypeAlias = Any
"""A task of any signature."""


def build_app(settings: Settings | None = None) -> tuple[App, dict[str, AnyTask]]:
    """An app, and all tasks of the drills by name."""
    app = App("drill", settings=settings)
    tasks: dict[str, AnyTask] = {}
    for function, options in (
        (work, {}),
        (hold, {}),
        (ahold, {}),
        (deaf_hold, {}),
        (echo, {"result_ttl": 600}),
        (limited, {"rate": Rate("2000/s", burst=200)}),
        (fail_once, {"retry": Retry(max=3, first=0.01, backoff=1.0)}),
        (overrun, {"hard_timeout": 0.3, "retry": Retry(max=1, first=0.01)}),
        (once, {"queue": ONCE_QUEUE, "delivery": "at_most_once"}),
        (die_killed, {}),
        (die_of_segfault, {}),
        (die_of_exit, {}),
        (die_of_memory, {}),
        (spoil, {}),
        (spoil_and_end, {}),
        (hold_async, {}),
        (die_async, {}),
        (die_in_company, {}),
        (kill_node, {}),
        (forget, {}),
    ):
        name = function.__name__
        usual: dict[str, Any] = {"queue": QUEUE, "result_ttl": 0, "name": name}
        tasks[name] = app.task(**{**usual, **options})(function)
    return app, tasks


def work(ctx: Context, key: str, body: str = "") -> None:  # noqa: ARG001 - its length is all that matters
    """A millisecond of work."""
    _note("E", ctx, key)
    time.sleep(_WORK_S)


def hold(ctx: Context, key: str, seconds: float) -> None:
    """Long work, with the interpreter free."""
    _note("E", ctx, key)
    time.sleep(seconds)
    _note("F", ctx, key)


def deaf_hold(ctx: Context, key: str, seconds: float) -> None:
    """Long work that no signal interrupts, as in foreign code; its worker reads no mail meanwhile."""
    _note("E", ctx, key)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    time.sleep(seconds)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    _note("F", ctx, key)


async def ahold(ctx: Context, key: str, seconds: float) -> None:
    """The same on an event loop."""
    _note("E", ctx, key)
    await asyncio.sleep(seconds)
    _note("F", ctx, key)


def echo(ctx: Context, key: str) -> str:
    """Quick work with a result."""
    _note("E", ctx, key)
    time.sleep(_WORK_S)
    return key


def limited(ctx: Context, key: str) -> None:
    """Work that needs a permit."""
    _note("E", ctx, key)
    time.sleep(_WORK_S)


def fail_once(ctx: Context, key: str) -> None:
    """Fails the first time."""
    _note("E", ctx, key)
    if ctx.failures == 0:
        raise ConnectionError(key)


def overrun(ctx: Context, key: str) -> None:
    """Hangs: only the end of its worker ends it."""
    _note("E", ctx, key)
    time.sleep(_FOREVER_S)


def once(ctx: Context, key: str) -> None:
    """Work that may be lost, but never runs twice."""
    _note("E", ctx, key)
    time.sleep(_WORK_S)
    _note("F", ctx, key)


def die_killed(ctx: Context, key: str) -> None:
    """As by the kernel's out-of-memory killer."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    os.kill(os.getpid(), signal.SIGKILL)


def die_of_segfault(ctx: Context, key: str) -> None:
    """As by a broken extension."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    ctypes.string_at(0)


def die_of_exit(ctx: Context, key: str) -> None:
    """As by a library that thinks it is the program."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    os._exit(7)


def die_of_memory(ctx: Context, key: str) -> None:
    """Out of memory under a limit, in a place where no exception helps."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 8 * 1024 * 1024,) * 2)
    try:
        bytearray(64 * 1024 * 1024)
    except MemoryError:
        os.abort()


def spoil(ctx: Context, key: str, pipe: str) -> None:
    """Writes garbage into a pipe of its worker: "control" or "dispatcher"."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    os.write(_pipe_to("supervisor" if pipe == "control" else pipe), _GARBAGE)
    time.sleep(_SHORT_S)


def spoil_and_end(ctx: Context, key: str) -> None:
    """The same, and is done: its report stands behind the garbage."""
    _note("E", ctx, key)
    _ledger.note("K", os.getpid(), "worker")
    os.write(_pipe_to("dispatcher"), _GARBAGE)


async def hold_async(ctx: Context, key: str, seconds: float) -> None:
    """Long work on the event loop."""
    _note("E", ctx, key)
    await asyncio.sleep(seconds)
    _note("F", ctx, key)


async def die_async(ctx: Context, key: str, seconds: float) -> None:
    """Takes everything on its event loop with it, a little later."""
    _note("E", ctx, key)
    await asyncio.sleep(seconds)
    _ledger.note("K", os.getpid(), "worker")
    os._exit(7)


_in_company = 0


async def die_in_company(ctx: Context, key: str, seconds: float) -> None:
    """As tasks that exhaust the memory together: alone in its worker it ends, beside its like it dies."""
    global _in_company  # noqa: PLW0603 - the point is what a process shares
    _note("E", ctx, key)
    _in_company += 1
    await asyncio.sleep(seconds)
    if _in_company > 1:
        _ledger.note("K", os.getpid(), "worker")
        os._exit(7)
    _in_company -= 1
    _note("F", ctx, key)


def kill_node(ctx: Context, key: str) -> None:
    """Ends the supervisor, and with it everything of the node."""
    _note("E", ctx, key)
    _ledger.note("K", os.getppid(), "supervisor")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(_FOREVER_S)


def _pipe_to(peer: str) -> int:
    (loop,) = (each for each in gc.get_objects() if isinstance(each, ActorLoop))
    return loop._mailboxes[peer].fileno()


def forget(ctx: Context, key: str) -> None:
    """Makes its worker forget the deliveries it has not begun, as mail that was lost would."""
    _note("E", ctx, key)
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        worker = frame.f_locals.get("self")
        if type(worker).__name__ == "Worker":
            worker._pending.clear()


def _note(kind: str, ctx: Context, key: str) -> None:
    _ledger.note_run(kind, key, ctx.id, ctx.attempt, ctx.fence)


app, _ = build_app()
