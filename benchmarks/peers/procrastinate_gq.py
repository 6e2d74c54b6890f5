"""procrastinate on PostgreSQL, for `benchmarks.gq`: each command does its work and prints its seconds.

    procrastinate_gq.py ADDRESS setup | singles N | batches N SIZE | drain CONCURRENCY

Runs in an environment of its own; knows nothing of mqworker.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from procrastinate import App, BaseConnector, PsycopgConnector, SyncPsycopgConnector


# Any: procrastinate is not installed where types are checked.
def app_on(connector: BaseConnector) -> tuple[App, Any]:
    """The application and its task, which does nothing."""
    app = App(connector=connector)

    async def nothing(number: int) -> None:
        """A task, of the kind that procrastinate runs quickest."""

    return app, app.task(name="nothing", queue="bench")(nothing)


def set_up(address: str) -> None:
    """Make the tables."""
    app, _ = app_on(SyncPsycopgConnector(conninfo=address))
    with app.open():
        app.schema_manager.apply_schema()


def singles(address: str, count: int) -> float:
    """One call after the other."""
    app, task = app_on(SyncPsycopgConnector(conninfo=address))
    with app.open():
        task.defer(number=0)
        began = time.perf_counter()
        for number in range(count):
            task.defer(number=number)
        return time.perf_counter() - began


def batches(address: str, count: int, size: int) -> float:
    """Many calls in one statement."""
    app, task = app_on(SyncPsycopgConnector(conninfo=address))
    with app.open():
        task.defer(number=0)
        began = time.perf_counter()
        for start in range(0, count, size):
            task.batch_defer(*({"number": number} for number in range(start, start + size)))
        return time.perf_counter() - began


async def drain(address: str, concurrency: int) -> float:
    """Until the queue is empty."""
    app, _ = app_on(PsycopgConnector(conninfo=address, min_size=concurrency, max_size=concurrency + 2))
    async with app.open_async():
        began = time.perf_counter()
        await app.run_worker_async(
            queues=["bench"], wait=False, concurrency=concurrency, listen_notify=False, delete_jobs="never"
        )
        return time.perf_counter() - began


def main(address: str, command: str, *numbers: str) -> None:
    """Do as told."""
    match command:
        case "setup":
            set_up(address)
        case "singles":
            print(singles(address, *map(int, numbers)))
        case "batches":
            print(batches(address, *map(int, numbers)))
        case "drain":
            print(asyncio.run(drain(address, *map(int, numbers))))


if __name__ == "__main__":
    main(*sys.argv[1:])
