"""The producer of a contestant: reads commands as JSON lines, enqueues, answers with what it took.

Run as `python bench_driver.py <adapter module>` by the interpreter of the contestant. An adapter has:
`PACKAGES`, `SETTINGS`, `BULK`, `DRAIN_HINT` (tasks per second to expect, which only sizes the rounds),
`HAS_QUEUES` (one worker can serve many), `WORKER` (how its workers are started), `enqueue(task, args, queue)`
and `enqueue_bulk(task, list_of_args, queue)`, both plain or both async; `queue` is None for the default one.
An async adapter has `connect()` as well. Standard library only.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import json
import sys
import time
from collections.abc import Awaitable, Callable
from types import ModuleType

from bench_body import board
from bench_setup import QUEUES

BATCH = 500
TEN_KILOBYTES = "x" * 10_000
ARGUMENTS: dict[str, tuple[str, tuple[int | str, ...]]] = {
    "nothing": ("stamp", ()),
    "1 ms CPU": ("burn", (1,)),
    "5 ms CPU": ("burn", (5,)),
    "10 ms CPU": ("burn", (10,)),
    "50 ms CPU": ("burn", (50,)),
    "100 ms waiting": ("rest", (100,)),
    "10 kB arguments": ("carry", (TEN_KILOBYTES,)),
}
Answer = dict[str, object]


class Producer:
    """Sends tasks through one adapter."""

    def __init__(self, adapter: ModuleType) -> None:
        self.adapter = adapter
        self.is_async = inspect.iscoroutinefunction(adapter.enqueue)

    async def describe(self) -> Answer:
        """What the harness should know about this contestant."""
        adapter = self.adapter
        return {
            "worker": adapter.WORKER,
            "settings": adapter.SETTINGS,
            "bulk": adapter.BULK,
            "drain_hint": adapter.DRAIN_HINT,
            "has_queues": adapter.HAS_QUEUES,
            "versions": {name: importlib.metadata.version(name) for name in adapter.PACKAGES},
        }

    async def single(self, body: str, first: int, most: int, seconds: float) -> Answer:
        """One call after the other, until so many were sent or so much time has passed."""
        task, rest = ARGUMENTS[body]
        began, index = time.perf_counter(), first
        while index < first + most and time.perf_counter() - began < seconds:
            await self._one(task, (index, *rest))
            index += 1
        return {"count": index - first, "seconds": time.perf_counter() - began}

    async def bulk(self, body: str, first: int, most: int, seconds: float) -> Answer:
        """As `single`, in batches; queues take turns from batch to batch."""
        task, rest = ARGUMENTS[body]
        began, index = time.perf_counter(), first
        while index < first + most and time.perf_counter() - began < seconds:
            batch = [(number, *rest) for number in range(index, min(index + BATCH, first + most))]
            await self._many(task, batch)
            index += len(batch)
        return {"count": index - first, "seconds": time.perf_counter() - began}

    async def paced(self, first: int, count: int, rate: float, batch: int) -> Answer:
        """So many per second, in batches; each is marked as sent right before its call."""
        began = time.perf_counter()
        for index in range(first, first + count, batch):
            await self._wait_until(began + (index - first) / rate)
            numbers = range(index, min(index + batch, first + count))
            for number in numbers:
                board.note_sent(number)
            if batch == 1:
                await self._one("stamp", (index,))
            else:
                await self._many("stamp", [(number,) for number in numbers])
        return {"count": count, "seconds": time.perf_counter() - began}

    async def _one(self, task: str, args: tuple[int | str, ...]) -> None:
        queue = QUEUES[int(args[0]) % len(QUEUES)] if len(QUEUES) > 1 else None
        sent = self.adapter.enqueue(task, args, queue)
        if self.is_async:
            await sent

    async def _many(self, task: str, batch: list[tuple[int | str, ...]]) -> None:
        if len(QUEUES) == 1:
            parts = {None: batch}
        else:
            parts = {QUEUES[start]: batch[start :: len(QUEUES)] for start in range(len(QUEUES))}
        for queue, part in parts.items():
            sent = self.adapter.enqueue_bulk(task, part, queue)
            if self.is_async:
                await sent

    async def _wait_until(self, instant: float) -> None:
        pause = instant - time.perf_counter()
        if pause > 0 and self.is_async:
            await asyncio.sleep(pause)
        elif pause > 0:
            time.sleep(pause)  # noqa: ASYNC251 - a plain adapter has nothing else on the loop


async def serve(adapter: ModuleType) -> None:
    """Answer commands until the harness closes the pipe."""
    producer = Producer(adapter)
    if producer.is_async:
        await adapter.connect()
    commands: dict[str, Callable[..., Awaitable[Answer]]] = {
        "describe": producer.describe,
        "single": producer.single,
        "bulk": producer.bulk,
        "paced": producer.paced,
    }
    for line in sys.stdin:
        command = json.loads(line)
        answer = await commands[command.pop("do")](**command)
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(importlib.import_module(sys.argv[1])))
