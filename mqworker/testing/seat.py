"""The seat of an app on a bench: its connections lead to a server in memory, until it gets up again.

Tasks hold on to the connections of their app, so these stay the same object; what they open is replaced, and
put back at the end. Nothing of it reaches a real server, not even after `app.close()`.
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
from mqworker.tasks.outcome import NotKept, Outcome, decode_outcome
from mqworker.tasks.result_watch import ResultWatch
from mqworker.testing.memory_connection import AsyncMemoryConnection, MemoryConnection
from mqworker.testing.notebook import AsyncNotedQueue, Notebook, NotedQueue


class JobNotEnded(MqworkerError):
    """Run the bench first: somebody waits for a job, and nothing runs while he waits."""


class Seat:
    """Takes an app in when made; `leave` gives it its own connections back."""

    def __init__(self, app: App, clock: Clock, notebook: Notebook) -> None:
        self._app = app
        self._clock = clock
        self._notebook = notebook
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
            work = NotedQueue(queue, self.store, self._options, self._notebook)
            limit = self._app.connections.limit_by_queue.get(queue)
            if limit is not None:
                work.limit(limit)
            watch = _ImmediateWatch(work, self._clock)
            self._senders[queue] = Sender(work, watch, self._app.settings, lambda: self._async_queue(queue))
        return self._senders[queue]

    def _async_queue(self, queue: QueueName) -> AsyncNotedQueue:
        store = AsyncStore(AsyncMemoryConnection(self._connection), clock=self._clock)
        return AsyncNotedQueue(queue, store, self._options, self._notebook)


def _refuse_to_wait(channel: str) -> None:
    raise JobNotEnded(
        f"{channel} has not ended; on a bench nothing runs by itself: call bench.run_all(), after "
        "bench.advance(...) if something in it is to become due"
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
                    f"job {message} in {self._work.name} has not ended, it is {state}; on a bench nothing "
                    "runs by itself: call bench.run_all(), after bench.advance(...) if it is to become due"
                )
            )
        return future


class _Unended(Future[Outcome]):
    """To a caller who set himself a time it is as if the time had passed."""

    def result(self, timeout: float | None = None) -> Outcome:
        error = self.exception(timeout)
        if isinstance(error, JobNotEnded) and timeout is not None:
            raise TimeoutError(str(error)) from error
        return super().result(timeout)
