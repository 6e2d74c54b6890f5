"""The producer of gq: gathers messages and pushes them in batches; what could not be pushed is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.names import whole_number
from mqworker.queues.gq.database import Deadline, GqOutgoing, GqStore, outgoing
from mqworker.queues.gq.rules import LARGEST_BATCH

DEFAULT_LINGER_MS = 50


class GqProducer:
    """Pushes messages. Safe between threads.

    A failed push raises `StoreUnavailable` and keeps its messages, the last one included: do not push them
    again. The next push, flush or close tries the same batch first, and the database recognises it, so that
    it is stored once.
    """

    def __init__(
        self, store: GqStore, push_batch: int = 1, linger_ms: int | None = DEFAULT_LINGER_MS
    ) -> None:
        """`linger_ms`: how long a partial batch waits for more before it is pushed anyway; None: for ever."""
        self._store = store
        self._push_batch = whole_number("push_batch", push_batch, least=1, most=LARGEST_BATCH)
        if linger_ms is not None:
            whole_number("linger_ms", linger_ms, least=0, most=3_600_000)
        self._linger_ms = linger_ms
        self._buffer: list[GqOutgoing] = []
        self._unfinished: tuple[Callable[[], list[int]], int] | None = None
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.RLock()

    @property
    def buffered(self) -> int:
        """How many messages are not pushed yet."""
        with self._lock:
            return len(self._buffer) + (self._unfinished[1] if self._unfinished else 0)

    def push(
        self, payload: bytes | str, deadline: Deadline | None = None, *, connection: object | None = None
    ) -> list[int]:
        """Gather a message; the ids of all that were pushed by this call, often none.

        With a connection (SQL only) it is pushed at once in the caller's transaction, and nothing else is.
        """
        message = outgoing(payload, deadline)
        with self._lock:
            if self._is_closed:
                raise InvalidArgument("the producer is closed; accepted are pushes before that")
            if connection is not None:
                return self._store.push_within(connection, [message])
            self._buffer.append(message)
            if self.buffered >= self._push_batch:
                return self.flush()
            self._start_timer()
            return []

    def flush(self) -> list[int]:
        """Push everything that was gathered; the ids, in order. Raises when it cannot, and keeps the rest."""
        with self._lock:
            self._stop_timer()
            ids: list[int] = []
            while self._unfinished or self._buffer:
                if self._unfinished is None:
                    batch = self._buffer[: self._push_batch]
                    self._unfinished = (self._store.prepare_push(batch), len(batch))
                    del self._buffer[: len(batch)]
                ids += self._unfinished[0]()
                self._unfinished = None
            return ids

    def close(self) -> list[int]:
        """Push what is left and take no more; when that raises, the producer stays open."""
        with self._lock:
            ids = self.flush()
            self._is_closed = True
            return ids

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_timer(self) -> None:
        if self._linger_ms is None or self._timer is not None:
            return
        self._timer = threading.Timer(self._linger_ms / 1000, self._flush_in_background)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_in_background(self) -> None:
        with self._lock:
            self._timer = None
            try:
                self.flush()
            except MqworkerError:
                # Nobody to tell here. The messages are kept; the caller's next push, flush or close will
                # raise what still stands in the way, and until then it is tried again and again.
                self._start_timer()
