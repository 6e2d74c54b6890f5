"""Outbox: a bounded queue with a thread of its own, which sends batches and is never waited for.

A batch that fails is tried again, a few times and with growing pauses, for a collector that is away comes
back as a rule. What is refused again and again is dropped, and so is what finds the queue full; both are
counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

MOST_WAITING = 50_000
LARGEST_BATCH = 512
LINGER_S = 0.5
"""How long a batch may take to fill."""
PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Before a batch is tried again."""


class Outbox(Generic[ItemT]):
    """Sends items in batches."""

    def __init__(
        self,
        send: Callable[[Sequence[ItemT]], str | None],
        *,
        name: str,
        most_waiting: int = MOST_WAITING,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        """`send` is called in the thread: None when it worked, or what is wrong."""
        self._send = send
        self._most_waiting = most_waiting
        self._pauses_s = pauses_s
        self._waiting: deque[ItemT] = deque()
        self._under_way = 0
        self._change = threading.Condition()
        self._is_ending = False
        self.sent = 0
        self.dropped = 0
        self.trouble: str | None = None
        """What was wrong with the last batch."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def add(self, item: ItemT) -> None:
        """Take an item, or drop it when too many wait."""
        with self._change:
            if len(self._waiting) >= self._most_waiting:
                self.dropped += 1
                return
            self._waiting.append(item)
            if len(self._waiting) >= LARGEST_BATCH:
                self._change.notify_all()

    def __len__(self) -> int:
        """How many were neither sent nor dropped."""
        return len(self._waiting) + self._under_way

    def end(self) -> None:
        """Send what is there without lingering, each batch once."""
        with self._change:
            self._is_ending = True
            self._change.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether nothing waits any more."""
        return not len(self)

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if batch:
                self._send_or_drop(batch)
                with self._change:
                    self._under_way = 0

    def _next_batch(self) -> list[ItemT]:
        with self._change:
            if len(self._waiting) < LARGEST_BATCH and not (self._is_ending and self._waiting):
                self._change.wait(LINGER_S)
            count = min(len(self._waiting), LARGEST_BATCH)
            batch = [self._waiting.popleft() for _ in range(count)]
            self._under_way = count
            return batch

    def _send_or_drop(self, batch: list[ItemT]) -> None:
        for pause_s in (*self._pauses_s, None):
            self.trouble = self._send(batch)
            if self.trouble is None:
                self.sent += len(batch)
                return
            if pause_s is None or self._is_ending:
                break
            with self._change:
                self._change.wait_for(lambda: self._is_ending, pause_s)
        self.dropped += len(batch)
