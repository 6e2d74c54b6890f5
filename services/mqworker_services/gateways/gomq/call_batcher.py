"""Batches calls: delays them for a moment while many arrive, so that they go to the broker together.

grpcio hands over one call at a time and the node answers faster than the next one arrives; without batching,
each call would make its round trip alone. A lone call is delayed only now and then.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from mqworker.gateway import NodeClient, OnReply, outcome_of

BATCH_DELAY_S = 0.004
LARGEST_BATCH = 200
UNDELAYED_AFTER_A_LONE_CALL = 50
"""After a batch of one, this many calls are sent without delay."""

_ENVELOPE_BYTES = 64


class CallBatcher:
    """Sends all calls of a gateway to the node."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._batch: list[tuple[list[Any], OnReply, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._undelayed = 0

    async def call(self, *call: Any) -> Any:  # noqa: ANN401 - plain values, as the verb says
        """Have the broker carry out a verb; raises one of the MqworkerError family."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        size = _ENVELOPE_BYTES + sum(map(len, call))  # names and payloads
        self._submit(list(call), partial(_resolve, future), size)
        return outcome_of(await future)

    def _submit(self, call: list[Any], on_reply: OnReply, size: int) -> None:
        if self._undelayed > 0:
            self._undelayed -= 1
            self._node.submit_call(call, on_reply, size)
            return
        self._batch.append((call, on_reply, size))
        if len(self._batch) >= LARGEST_BATCH:
            self._release()
        elif self._timer is None:
            self._timer = self._loop.call_later(BATCH_DELAY_S, self._release)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, self._batch = self._batch, []
        if len(batch) == 1:
            self._undelayed = UNDELAYED_AFTER_A_LONE_CALL
        for call, on_reply, size in batch:
            self._node.submit_call(call, on_reply, size)


def _resolve(future: asyncio.Future[list[Any]], reply: list[Any]) -> None:
    if not future.done():  # its client has left meanwhile
        future.set_result(reply)
