"""Waiting for jobs of one queue: one thread and one subscription for everybody in this process who waits.

The channel `done` tells of ends at once. It may lose a message, so what is awaited is also asked for slowly;
and what left no result behind is looked for in the queue, more and more rarely. The thread ends when nobody
waits any more. Waiters get futures, which threads and event loops can both await.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.model.clock import Clock
from mqworker.model.names import MessageId
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.subscription import RESUBSCRIBED, Subscription
from mqworker.tasks.outcome import Expired, NotKept, Outcome, decode_outcome

POLL_MS = 1_000
POLL_WITHOUT_CHANNEL_MS = 50
IDLE_MS = 5_000
FIRST_SEARCH_MS = 2_000
LONGEST_SEARCH_PAUSE_MS = 30_000
BATCH = 1_000
CLOSE_S = 2.0


@dataclass(slots=True)
class _Awaited:
    """One message and all who wait for it; when it is next looked for in the queue."""

    search_at_ms: int
    pause_ms: int = FIRST_SEARCH_MS
    futures: list[Future[Outcome]] = field(default_factory=list)


class ResultWatch:
    """Futures of outcomes, for all threads of this process; a forked child starts anew."""

    def __init__(self, queue: WorkQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._thread: threading.Thread | None = None
        self._start_anew()

    def watch(self, message: MessageId, *, is_fresh: bool) -> Future[Outcome]:
        """The outcome to come. One enqueued by this process is not looked for in the queue at first."""
        if self._pid != os.getpid():
            self._start_anew()
        future: Future[Outcome] = Future()
        search_at_ms = self._clock.monotonic_ms() + (FIRST_SEARCH_MS if is_fresh else 0)
        with self._lock:
            self._awaited.setdefault(message, _Awaited(search_at_ms)).futures.append(future)
            self._new.append(message)
            if self._thread is None:
                self._start_thread()
            self._poke()
        return future

    def close(self) -> None:
        """Stop waiting; whoever still does is told so."""
        with self._lock:
            thread, self._is_closing = self._thread, True
            if thread is None or self._pid != os.getpid():
                return
            self._poke()
        thread.join(CLOSE_S)

    def _start_anew(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._awaited: dict[MessageId, _Awaited] = {}
        self._new: list[MessageId] = []
        self._thread = None
        self._is_closing = False

    def _start_thread(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._ear.settimeout(0)
        self._mouth.settimeout(0)
        self._thread = threading.Thread(target=self._serve, name="mqworker-results", daemon=True)
        self._thread.start()

    def _poke(self) -> None:
        with suppress(BlockingIOError):  # it is full of pokes already
            self._mouth.send(b"!")

    def _serve(self) -> None:
        subscription = self._subscribe()
        poll_ms = POLL_MS if subscription else POLL_WITHOUT_CHANNEL_MS
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            if subscription:
                selector.register(subscription, selectors.EVENT_READ)
            idle_since_ms = polled_at_ms = self._clock.monotonic_ms()
            while True:
                now_ms = self._clock.monotonic_ms()
                idle_since_ms = now_ms if self._awaited else idle_since_ms
                if self._is_closing:
                    self._give_up(StoreUnavailable("the app was closed while somebody waited for a result"))
                if (self._is_closing or now_ms - idle_since_ms >= IDLE_MS) and self._retire():
                    break
                self._guarded_turn(subscription, is_poll_due=now_ms - polled_at_ms >= poll_ms)
                polled_at_ms = now_ms if now_ms - polled_at_ms >= poll_ms else polled_at_ms
                selector.select(poll_ms / 1000)
        if subscription:
            subscription.close()

    def _subscribe(self) -> Subscription | None:
        try:
            return self._queue.store.connection.subscribe([self._queue.calls.keys.done])
        except MqworkerError:
            return None  # no permission for channels, or no server: asking still works, or says what is wrong

    def _retire(self) -> bool:
        with self._lock:
            if self._awaited:
                return False
            self._thread, self._is_closing = None, False
            self._ear.close()
            self._mouth.close()
            return True

    def _guarded_turn(self, subscription: Subscription | None, *, is_poll_due: bool) -> None:
        try:
            self._take_turn(subscription, is_poll_due=is_poll_due)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            given_up, self._awaited = self._awaited, {}
        for awaited in given_up.values():
            _give(awaited.futures, error)

    def _take_turn(self, subscription: Subscription | None, *, is_poll_due: bool) -> None:
        with self._lock:
            new, self._new = self._new, []
        self._drain_pokes()
        self._check(new)
        if subscription:
            while arrived := subscription.get(0):
                is_poll_due = is_poll_due or arrived == RESUBSCRIBED
                self._check(
                    [MessageId(each) for each in arrived[1].decode(errors="replace").split()], have_ended=True
                )
        if is_poll_due:
            self._drop_abandoned()
            self._check(list(self._awaited))

    def _drain_pokes(self) -> None:
        with suppress(BlockingIOError):
            while self._ear.recv(4096):
                pass

    def _check(self, messages: Sequence[MessageId], *, have_ended: bool = False) -> None:
        known = [message for message in dict.fromkeys(messages) if message in self._awaited]
        for start in range(0, len(known), BATCH):
            batch = known[start : start + BATCH]
            replies = self._queue.store.run(self._queue.calls.wait(batch))
            for message, reply in zip(batch, replies, strict=True):
                if reply is not None:
                    self._resolve(message, decode_outcome(message, reply))
                elif have_ended or self._is_search_due(message):
                    self._search(message)

    def _is_search_due(self, message: MessageId) -> bool:
        awaited, now_ms = self._awaited[message], self._clock.monotonic_ms()
        if now_ms < awaited.search_at_ms:
            return False
        awaited.search_at_ms = now_ms + awaited.pause_ms
        awaited.pause_ms = min(LONGEST_SEARCH_PAUSE_MS, 2 * awaited.pause_ms)
        return True

    def _search(self, message: MessageId) -> None:
        """Find out whether a message that has no outcome exists at all."""
        # Twice: between two looks of one search it may have changed hands.
        states = [self._queue.find(message).state for _ in range(2)]
        if "expired" in states:
            self._resolve(message, Expired())
        elif states == ["absent", "absent"]:
            reply = self._queue.store.run(self._queue.calls.wait([message]))[0]
            self._resolve(message, NotKept() if reply is None else decode_outcome(message, reply))

    def _resolve(self, message: MessageId, outcome: Outcome) -> None:
        with self._lock:
            awaited = self._awaited.pop(message, None)
        if awaited is not None:
            _give(awaited.futures, outcome)

    def _drop_abandoned(self) -> None:
        """Those whose waiters all gave up are waited for no longer."""
        with self._lock:
            for message, awaited in list(self._awaited.items()):
                if all(future.cancelled() for future in awaited.futures):
                    del self._awaited[message]


def _give(futures: Iterable[Future[Outcome]], outcome: Outcome | Exception) -> None:
    for future in futures:
        if not future.set_running_or_notify_cancel():
            continue  # its waiter gave up
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
