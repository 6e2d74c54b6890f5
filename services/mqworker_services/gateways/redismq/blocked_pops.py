"""Blocked pops: clients that pop with BLOCK, in the order in which they came.

A blocked client holds no connection to Redis. When something is pushed, by whatever route, the gateway is
woken and pops for its blocked clients, the longest waiting first. If the client is gone when the reply
comes, the element is put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mqworker.gateway import NodeClient
from mqworker_services.gateways.redismq.commands import Pop

POLL_S = 1.0
"""A lost wake-up costs this much."""
_AGAIN_S = 0.5

OnPopped = Callable[[list[Any]], None]
"""Is given the reply: True and [(id, element), ...] or None; or False, kind and text."""


@dataclass(slots=True, eq=False)
class BlockedPop:
    """One pop, from the first try to its reply."""

    order: Pop
    on_popped: OnPopped
    timer: asyncio.TimerHandle | None = None
    is_trying: bool = False
    is_woken: bool = False
    """Whether something came while it was trying, so that it must try again."""
    is_late: bool = False
    is_gone: bool = False


@dataclass(slots=True)
class _Line:
    waiters: list[BlockedPop] = field(default_factory=list)
    waker: Callable[[], None] = lambda: None


class BlockedPops:
    """Carries out pops, waiting ones and others."""

    def __init__(self, node: NodeClient) -> None:
        self._node = node
        self._line_by_key: dict[str, _Line] = {}
        self._poll: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len({waiter for line in self._line_by_key.values() for waiter in line.waiters})

    def pop(self, order: Pop, on_popped: OnPopped) -> BlockedPop:
        """Carry out a pop; `on_popped` is called once, unless the client leaves first."""
        waiter = BlockedPop(order, on_popped)
        if order.block_ms is None:
            self._try(waiter)
            return waiter
        if order.block_ms > 0:
            waiter.timer = asyncio.get_running_loop().call_later(order.block_ms / 1000, self._expire, waiter)
        is_first = not any(key in self._line_by_key for key in order.keys)
        self._enter(waiter)
        if is_first:  # others try for themselves when they are woken, and this one after them
            self._try(waiter)
        return waiter

    def leave(self, waiter: BlockedPop) -> None:
        """The client is gone; it takes nothing."""
        waiter.is_gone = True
        self._exit(waiter)

    def close(self) -> None:
        """End all blocked pops."""
        for waiter in {each for line in self._line_by_key.values() for each in line.waiters}:
            self._expire(waiter)
        if self._poll is not None:
            self._poll.cancel()
            self._poll = None

    def _enter(self, waiter: BlockedPop) -> None:
        for key in dict.fromkeys(waiter.order.keys):
            line = self._line_by_key.get(key)
            if line is None:
                line = self._line_by_key[key] = _Line(waker=partial(self._wake, key))
                self._node.watch(key, line.waker)
            line.waiters.append(waiter)
        if self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._poll_lines)

    def _exit(self, waiter: BlockedPop) -> None:
        if waiter.timer is not None:
            waiter.timer.cancel()
        for key in waiter.order.keys:
            line = self._line_by_key.get(key)
            if line is None or waiter not in line.waiters:
                continue
            line.waiters.remove(waiter)
            if not line.waiters:
                del self._line_by_key[key]
                self._node.unwatch(key, line.waker)

    def _wake(self, key: str) -> None:
        line = self._line_by_key.get(key)
        for waiter in list(line.waiters) if line is not None else ():
            self._try(waiter)

    def _poll_lines(self) -> None:
        """Only the first of each line: if there is something, the others are woken."""
        self._poll = None
        for line in list(self._line_by_key.values()):
            self._try(line.waiters[0])
        if self._line_by_key:
            self._poll = asyncio.get_running_loop().call_later(POLL_S, self._poll_lines)

    def _try(self, waiter: BlockedPop) -> None:
        if waiter.is_trying:
            waiter.is_woken = True
            return
        waiter.is_trying, waiter.is_woken = True, False
        count, keys = waiter.order.count, waiter.order.keys
        call: list[Any] = ["pop", keys[0], count] if len(keys) == 1 else ["pop_any", count, keys]
        self._node.submit_pop(call, partial(self._on_reply, waiter))

    def _on_reply(self, waiter: BlockedPop, reply: list[Any]) -> None:
        waiter.is_trying = False
        keys = waiter.order.keys
        if waiter.is_gone:
            self._put_back(keys, reply)
            return
        has_nothing = reply[0] and not reply[1]
        if has_nothing and waiter.order.block_ms is not None:
            self._wait_on(waiter)
            return
        if reply[0] and reply[1] and len(keys) > 1:
            reply = [True, [(item, element) for _, item, element in reply[1]]]
        if waiter.order.block_ms is None:
            waiter.on_popped(reply)
            return
        self._exit(waiter)
        waiter.on_popped(reply)
        for key in keys:
            self._wake(key)  # there may be more than it took

    def _wait_on(self, waiter: BlockedPop) -> None:
        if waiter.is_late:
            self._exit(waiter)
            waiter.on_popped([True, None])
        elif waiter.is_woken:
            self._try(waiter)

    def _expire(self, waiter: BlockedPop) -> None:
        waiter.is_late = True
        if not waiter.is_trying:
            self._wait_on(waiter)

    def _put_back(self, keys: list[str], reply: list[Any]) -> None:
        ids_by_key: dict[str, list[str]] = {}
        for *source, item, _ in reply[1] or () if reply[0] else ():
            ids_by_key.setdefault(source[0] if source else keys[0], []).append(item)
        for key, ids in ids_by_key.items():
            self._put_back_to(key, ids)

    def _put_back_to(self, key: str, ids: list[str]) -> None:
        def on_reply(reply: list[Any]) -> None:
            if not reply[0]:  # until it is done: nobody else knows of them
                asyncio.get_running_loop().call_later(_AGAIN_S, self._put_back_to, key, ids)

        self._node.submit_pop(["put_back", key, ids], on_reply)
