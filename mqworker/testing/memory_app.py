"""Connects an app to a server in memory while it is on a bench.

Tasks keep a reference to the connections of their app, so that object stays; what it opens is replaced, and
restored at the end. Nothing reaches a real server, not even after `app.close()`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import ExitStack
from unittest.mock import patch
from weakref import WeakKeyDictionary

from mqworker.errors import MqworkerError
from mqworker.model.clock import Clock
from mqworker.model.names import MessageId, QueueName
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.async_store import AsyncStore
from mqworker.store.store import Store
from mqworker.tasks.app import App
from mqworker.tasks.connections import Sender
from mqworker.tasks.job import ResultWatch
from mqworker.tasks.outcome import NotKept, Outcome, decode_outcome
from mqworker.testing.enqueued_calls import AsyncRecordedQueue, EnqueuedCalls, RecordedQueue
from mqworker.testing.memory_connection import AsyncMemoryConnection, MemoryConnection


class JobNotEnded(MqworkerError):
    """Run the bench first: on a bench no job runs while the test waits for it."""


class MemoryApp:
    """Replaces the connections of an app when made; `leave` restores them."""

    def __init__(self, app: App, clock: Clock, enqueued_calls: EnqueuedCalls) -> None:
        self._app = app
        self._clock = clock
        self._enqueued = enqueued_calls
        self._connection = MemoryConnection(clock)
        settings = app.settings
        self._options = WorkQueueOptions(
            settings.namespace, settings.events_kept, round(settings.dedup_window_s * 1000)
        )
        self.store = Store(self._connection, clock=clock)
        self._senders: dict[QueueName, Sender] = {}
        self._replaced = ExitStack()
        self._replaced.enter_context(
            patch.multiple(
                app.connections,
                _store=self.store,
                _senders=self._senders,
                _async_queues=WeakKeyDictionary(),
                _open_sender=self._open_sender,
                async_queue=self._async_queue,
                listen=_refuse_to_wait,
                close=lambda: None,
                aclose=lambda: asyncio.sleep(0),
            )
        )

    def leave(self) -> None:
        """Give the app its own connections back."""
        self._replaced.close()

    def _open_sender(self, queue: QueueName) -> Sender:
        if queue not in self._senders:
            work = RecordedQueue(queue, self.store, self._options, self._enqueued)
            limit = self._app.connections.limit_by_queue.get(queue)
            if limit is not None:
                work.limit(limit)
            watch = _ImmediateWatch(work, self._clock)
            self._senders[queue] = Sender(
                work,
                watch,
                self._app.settings,
                lambda: self._async_queue(queue),
                payloads=self._app.connections.payloads,
            )
        return self._senders[queue]

    def _async_queue(self, queue: QueueName) -> AsyncRecordedQueue:
        store = AsyncStore(AsyncMemoryConnection(self._connection), clock=self._clock)
        return AsyncRecordedQueue(queue, store, self._options, self._enqueued)


def _refuse_to_wait(channel: str) -> None:
    raise JobNotEnded(
        f"{channel} has not ended; a bench runs jobs only when told: call bench.run_all(), after "
        "bench.advance(...) if it is delayed"
    )


class _ImmediateWatch(ResultWatch):
    """Says at once how a job ended, or that it has not: a test that waits would wait for ever."""

    def __init__(self, queue: WorkQueue, clock: Clock) -> None:
        super().__init__(queue, clock)
        self._work = queue

    def watch(self, message: MessageId, *, is_fresh: bool) -> Future[Outcome]:
        """The outcome as it is now."""
        del is_fresh  # nothing is looked for later, so nothing is put off
        future: Future[Outcome] = _Unended()
        reply = self._work.store.run(self._work.calls.wait([message]))[0]
        state = self._work.find(message).state
        if reply is not None:
            future.set_result(decode_outcome(message, reply))
        elif state == "absent":
            future.set_result(NotKept())
        else:
            future.set_exception(
                JobNotEnded(
                    f"job {message} in {self._work.name} has not ended, it is {state}; a bench runs jobs "
                    "only when told: call bench.run_all(), after bench.advance(...) if it is delayed"
                )
            )
        return future


class _Unended(Future[Outcome]):
    """With a timeout, the caller gets TimeoutError, as if the time had passed."""

    def result(self, timeout: float | None = None) -> Outcome:
        error = self.exception(timeout)
        if isinstance(error, JobNotEnded) and timeout is not None:
            raise TimeoutError(str(error)) from error
        return super().result(timeout)
