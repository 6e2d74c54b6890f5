"""Calls held back for a moment while many come, so that they travel to the broker together.

grpcio hands over one call at a time, and the node is quicker than that: without this, each would make its
round trip alone. Whether it is worth it is tried out now and then: who calls alone is hardly held up.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from mqworker.gateway import NodeClient, OnReply, outcome_of

HELD_BACK_S = 0.004
MOST_HELD_BACK = 200
AT_ONCE_AFTER_A_VAIN_WAIT = 50
"""So many calls are not held back after one that nobody joined."""

_ENVELOPE_BYTES = 64


class Gathering:
    """One way to the node, for all calls of a gateway."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._held_back: list[tuple[list[Any], OnReply, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._at_once = 0

    async def call(self, *call: Any) -> Any:  # noqa: ANN401 - plain values, as the verb says
        """Have the broker carry out a verb; raises one of the MqworkerError family."""
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        size = _ENVELOPE_BYTES + sum(map(len, call))  # names and payloads
        self._submit(list(call), partial(_resolve, future), size)
        return outcome_of(await future)

    def _submit(self, call: list[Any], on_reply: OnReply, size: int) -> None:
        if self._at_once > 0:
            self._at_once -= 1
            self._node.submit_call(call, on_reply, size)
            return
        self._held_back.append((call, on_reply, size))
        if len(self._held_back) >= MOST_HELD_BACK:
            self._release()
        elif self._timer is None:
            self._timer = self._loop.call_later(HELD_BACK_S, self._release)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held_back, self._held_back = self._held_back, []
        if len(held_back) == 1:
            self._at_once = AT_ONCE_AFTER_A_VAIN_WAIT
        for call, on_reply, size in held_back:
            self._node.submit_call(call, on_reply, size)


def _resolve(future: asyncio.Future[list[Any]], reply: list[Any]) -> None:
    if not future.done():  # its client has left meanwhile
        future.set_result(reply)
