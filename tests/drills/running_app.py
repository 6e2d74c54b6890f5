"""The application of the drill about how many run at once: each run looks who runs beside it.

A run locks a file of its own in the folder of its key, and counts the files there that somebody has locked.
The kernel lets go of the locks of whoever is killed, so nothing dead is taken for running; of two runs
that overlap at least the one that locked later sees the other.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from pathlib import Path
from typing import Any

from mqworker import App, Context, MaxRunning
from mqworker.settings import Settings
from tests.drills.drill_app import LEDGER_VARIABLE
from tests.support.ledger import LedgerWriter

QUEUE, OTHER_QUEUE = "running", "running-too"
IN_TOTAL, OF_A_KEY, SHARED = 3, 2, 2

_folder = Path(os.environ.get(LEDGER_VARIABLE, "."))
_ledger = LedgerWriter(_folder)
_chance = random.Random()  # noqa: S311 - how long a run takes


def build_app(settings: Settings | None = None) -> tuple[App, dict[str, Any]]:
    """An app, and its tasks by name. Any: tasks of any signature."""
    app = App("running", settings=settings)
    usual: dict[str, Any] = {"result_ttl": 0, "max_crashes": None, "max_losses": None}
    both = [IN_TOTAL, {"{key}": OF_A_KEY}]
    shared = MaxRunning(SHARED, name="shared")
    return app, {
        "in_order": app.task(name="in_order", queue=QUEUE, max_running={"{key}": 1}, **usual)(in_order),
        "stacked": app.task(name="stacked", queue=QUEUE, max_running=both, **usual)(stacked),
        "here": app.task(name="here", queue=QUEUE, max_running=shared, **usual)(here),
        "there": app.task(name="there", queue=OTHER_QUEUE, max_running=shared, **usual)(there),
        "free": app.task(name="free", queue=QUEUE, **usual)(free),
    }


def in_order(ctx: Context, key: str, number: int) -> None:
    """One at a time for each key."""
    _run(ctx, "in_order", key, number, {f"in_order-{key}": 1})


def stacked(ctx: Context, key: str, number: int) -> None:
    """Few of a key, and few in total."""
    _run(ctx, "stacked", key, number, {"stacked": IN_TOTAL, f"stacked-{key}": OF_A_KEY})


def here(ctx: Context, key: str, number: int) -> None:
    """Shares its limit with a task of another queue."""
    _run(ctx, "here", key, number, {"shared": SHARED})


def there(ctx: Context, key: str, number: int) -> None:
    """The task of the other queue."""
    _run(ctx, "there", key, number, {"shared": SHARED})


def free(ctx: Context, key: str, number: int) -> None:
    """Has no limit."""
    _run(ctx, "free", key, number, {})


def _run(ctx: Context, task: str, key: str, number: int, limits: dict[str, int]) -> None:
    locked = [_lock(_folder / "running" / name, ctx) for name in limits]
    beside = [_count(path.parent) for path, _ in locked]
    words = [f"{count}/{most}" for count, most in zip(beside, limits.values(), strict=True)]
    _ledger.note("E", f"{task}-{key}", number, ctx.fence, time.monotonic_ns() // 1_000, os.getpid(), *words)
    time.sleep(_chance.uniform(0.0, 0.003))
    _ledger.note("F", f"{task}-{key}", number, ctx.fence, time.monotonic_ns() // 1_000)
    for path, file in locked:
        path.unlink()
        os.close(file)


def _lock(folder: Path, ctx: Context) -> tuple[Path, int]:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{ctx.queue}-{ctx.fence}"
    unseen = _folder / f"{folder.name}-{name}.new"
    file = os.open(unseen, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    unseen.rename(folder / name)  # locked before anybody can look at it
    return folder / name, file


def _count(folder: Path) -> int:
    """How many of the files there are locked; those of the dead are removed."""
    count = 0
    for path in folder.iterdir():
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: others may look at the same time
            path.unlink(missing_ok=True)
        except BlockingIOError:
            count += 1
        finally:
            os.close(file)
    return count


app, _ = build_app()
