"""What the monitor answers at which path.

Redis is read once for all who ask at the same moment, and not at all for probes: whether it answers the beats
of this node is known to the supervisor.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from http import HTTPStatus
from typing import Any

from mqworker.actors.monitor.listener import Answer, Request
from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.model.clock import Clock
from mqworker.model.readiness import why_not_ready
from mqworker.operate.metrics.node import node_families
from mqworker.operate.metrics.scale import ScaleQuestion, read_scale
from mqworker.operate.metrics.system import outage_families, read_metrics
from mqworker.operate.metrics.text import CONTENT_TYPE, page
from mqworker.settings import Settings
from mqworker.store.store import Store

# Any: plain values, as the supervisor sends them.
AskSupervisor = Callable[[], Awaitable[dict[str, Any] | None]]

REDIS_S = 3.0
"""How long a scrape waits for Redis; without an answer it shows what is known without it."""
SHARED_MS = 500
"""How old a reading of Redis may be: a thousand scrapes at once ask Redis once."""
MOST_WAITING = 32
"""Questions in line for Redis; while it hangs, more would only wait for nothing."""
JSON = "application/json"
PATHS = (
    "/livez           200: the supervisor's loop turns\n"
    "/readyz          200: every actor lives, Redis answers, no drain is under way\n"
    "/metrics         OpenMetrics: this node, and the system as Redis knows it\n"
    "/metrics/node    this node alone\n"
    "/metrics/system  the system alone: the same on every node\n"
    "/scale/<queue>   JSON for an autoscaler; ?target_wait_s=10&soon_s=30&slots=1\n"
)


class Pages:
    """Answers requests."""

    def __init__(
        self, settings: Settings, store: Store, ask: AskSupervisor, thread: Executor, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._ask = ask
        self._thread = thread
        self._clock = clock
        self._reading: asyncio.Future[list[str]] | None = None
        self._read_at_ms = 0
        self._waiting = 0

    async def answer(self, request: Request) -> Answer:
        """What is at this path."""
        match request.path.split("/")[1:]:
            case ["livez"]:
                return self._probed("live", "" if await self._ask() else _HUNG)
            case ["readyz"]:
                snapshot = await self._ask()
                return self._probed("ready", _HUNG if snapshot is None else why_not_ready(snapshot))
            case ["metrics"]:
                return _metrics([*await self._node(), *await self._system()])
            case ["metrics", "node"]:
                return _metrics(await self._node())
            case ["metrics", "system"]:
                return _metrics(await self._system())
            case ["scale", queue]:
                return await self._scale(queue, request.query)
            case [""]:
                return Answer(HTTPStatus.OK, PATHS)
            case _:
                return Answer(HTTPStatus.NOT_FOUND, f"there is nothing here; there is\n{PATHS}")

    def _probed(self, question: str, problem: str | None) -> Answer:
        if not problem:
            return Answer(HTTPStatus.OK, f"{question}\n")
        return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not {question}: {problem}\n")

    async def _node(self) -> list[str]:
        snapshot = await self._ask()
        if snapshot is None:
            return []
        # In a thread: the memory of a thousand workers takes a while to ask for. Not in that of Redis.
        return await asyncio.to_thread(lambda: list(node_families(snapshot)))

    async def _system(self) -> list[str]:
        now_ms = self._clock.monotonic_ms()
        is_stale = now_ms - self._read_at_ms > SHARED_MS
        if self._reading is None or (self._reading.done() and is_stale):
            self._read_at_ms = now_ms
            self._reading = asyncio.ensure_future(
                self._apart(lambda: read_metrics(self._store, self._settings.namespace))
            )
        try:
            async with asyncio.timeout(REDIS_S):
                return await asyncio.shield(self._reading)
        except (TimeoutError, MqworkerError):
            return list(outage_families())

    async def _scale(self, queue: str, query: dict[str, str]) -> Answer:
        try:
            question = ScaleQuestion.of(queue, query)
            async with asyncio.timeout(REDIS_S):
                document = await self._apart(
                    lambda: read_scale(self._store, self._settings.namespace, question)
                )
        except InvalidArgument as error:
            return Answer(HTTPStatus.BAD_REQUEST, f"{error}\n")
        except (MqworkerError, TimeoutError) as error:
            why = str(error) or f"Redis does not answer within {REDIS_S:g} s"
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{why}\n")
        return Answer(HTTPStatus.OK, f"{json.dumps(document)}\n", JSON)

    # Any: whatever the function gives.
    async def _apart(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401
        if self._waiting >= MOST_WAITING:
            raise StoreUnavailable(
                f"{self._waiting} questions wait for Redis, which does not answer", maybe_executed=False
            )
        self._waiting += 1
        asked = asyncio.get_running_loop().run_in_executor(self._thread, function)
        asked.add_done_callback(self._note_answered)
        return await asyncio.shield(asked)

    def _note_answered(self, asked: asyncio.Future[Any]) -> None:
        self._waiting -= 1
        asked.cancelled() or asked.exception()  # whoever asked may have left meanwhile


_HUNG = "the supervisor does not answer"


def _metrics(lines: list[str]) -> Answer:
    return Answer(HTTPStatus.OK, page(lines), CONTENT_TYPE)
