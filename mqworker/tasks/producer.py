"""Producer: gathers calls and sends them in batches, for programs that enqueue a lot one by one.

A call is sent when a batch is full, when it has lingered long enough, or on `flush` and `close`. Nothing is
dropped silently: what could not be sent stays in the buffer, the error reaches the next caller, and the
next flush repeats the very same exchange, so that a batch whose reply was lost is not stored twice.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from typing import ParamSpec, Self, TypeVar

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import Clock
from mqworker.model.message import Message
from mqworker.model.names import QueueName, shown, whole_number
from mqworker.store.exchange import Exchange
from mqworker.tasks.connections import Connections, Sender
from mqworker.tasks.job import Job
from mqworker.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

LARGEST_BATCH = 1_000
MOST_BATCHES_HELD = 100
LONGEST_LINGER_S = 60.0


class Producer:
    """A buffer in front of an app's queues. Safe between threads; use it in a `with` block, or close it."""

    def __init__(self, connections: Connections, clock: Clock, *, push_batch: int, linger: float) -> None:
        whole_number("push_batch", push_batch, least=1, most=LARGEST_BATCH)
        if isinstance(linger, bool) or not 0 <= linger <= LONGEST_LINGER_S:
            raise InvalidArgument(
                f"linger is {shown(linger)}; accepted are 0 to {LONGEST_LINGER_S:g} seconds"
            )
        self._connections = connections
        self._clock = clock
        self._batch = push_batch
        self._linger_s = linger
        self._lock = threading.RLock()
        self._buffers: dict[QueueName, deque[Message]] = {}
        self._unanswered: dict[QueueName, tuple[Exchange, int]] = {}
        self._timer: threading.Timer | None = None
        self._trouble: MqworkerError | None = None
        self._is_closed = False
        self._log = get_logger(part="producer")
        _open_producers.add(self)

    def enqueue(self, task: Task[P, R], *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Take the call into the buffer; its job is there at once. Sends when the batch is full.

        Raises what went wrong with an earlier batch, in which case this call was not taken.
        """
        sender = self._connections.sender(task.plan.queue)
        tracer, queue = sender.tracer, task.plan.queue
        headers = None if tracer is None else tracer.created(queue, task.name)
        message = task.wrapped_message(args, kwargs, sender, headers)
        with self._lock:
            self._refuse_when_stuck(task.plan.queue)
            buffer = self._buffers.setdefault(task.plan.queue, deque())
            buffer.append(message)
            if len(buffer) >= self._batch:
                self._flush_after_taking()
            elif self._timer is None:
                self._start_timer()
        return Job(message.id, sender, task.definition, is_new=True)

    def flush(self) -> None:
        """Send everything. When that fails, what was not sent stays, and the error is raised."""
        with self._lock:
            self._trouble = None
            self._stop_timer()
            for queue in list(self._buffers):
                self._send(queue)

    def close(self) -> None:
        """Flush, and take no more."""
        with self._lock:
            self.flush()
            self._is_closed = True
            _open_producers.discard(self)

    def __len__(self) -> int:
        """How many calls wait in the buffer."""
        with self._lock:
            return sum(len(buffer) for buffer in self._buffers.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def forget(self) -> None:
        """Begin with an empty buffer, as the child of a fork must."""
        self._lock = threading.RLock()
        self._buffers, self._unanswered, self._timer, self._trouble = {}, {}, None, None

    def _refuse_when_stuck(self, queue: QueueName) -> None:
        if self._is_closed:
            raise InvalidArgument("the producer is closed; accepted are calls before close()")
        if self._trouble is not None:
            trouble, self._trouble = self._trouble, None
            raise trouble
        if len(self._buffers.get(queue, ())) >= self._batch * MOST_BATCHES_HELD:
            self._send(queue)  # raises what is wrong; the buffer must not grow for ever

    def _flush_after_taking(self) -> None:
        """The call is in the buffer already: an error now belongs to the next caller, or it is sent twice."""
        try:
            self.flush()
        except MqworkerError as error:
            self._note(error)

    def _note(self, error: MqworkerError) -> None:
        self._trouble = error
        self._log.warning("producer_flush_failed", problem=str(error), buffered=len(self))
        self._start_timer()

    def _send(self, queue: QueueName) -> None:
        sender, buffer = self._connections.sender(queue), self._buffers[queue]
        while buffer:
            exchange, count = self._unanswered.get(queue) or self._begin(sender, buffer)
            try:
                sender.work.store.attempt(exchange)
            except StoreUnavailable:
                # Perhaps stored, perhaps not: the same numbered call, repeated, is recognised.
                self._unanswered[queue] = (exchange, count)
                raise
            except MqworkerError:
                self._unanswered.pop(queue, None)  # refused, hence not stored
                raise
            self._unanswered.pop(queue, None)
            for _ in range(count):
                buffer.popleft()
            if sender.tracer is not None:
                sender.tracer.count_sent(queue, count)

    def _begin(self, sender: Sender, buffer: deque[Message]) -> tuple[Exchange, int]:
        batch = [buffer[position] for position in range(min(len(buffer), self._batch))]
        sender.register()
        return sender.work.store.begin([sender.work.calls.enqueue(batch)]), len(batch)

    def _start_timer(self) -> None:
        if self._timer is None and self._linger_s > 0:
            self._timer = threading.Timer(self._linger_s, self._flush_in_background)
            self._timer.daemon = True
            self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush_in_background(self) -> None:
        with self._lock:
            self._timer = None
            if not self._is_closed:
                self._flush_after_taking()


# Strong references: a producer that was forgotten with calls in its buffer must still be flushed.
_open_producers: set[Producer] = set()


def _leave_after_fork() -> None:
    """What is in the buffers is the parent's to send: a child that did so too would store it twice."""
    for producer in _open_producers:
        producer.forget()


os.register_at_fork(after_in_child=_leave_after_fork)


@atexit.register
def _flush_at_exit() -> None:
    """The last chance for what was left in a buffer; if it fails, it is at least said how much is lost."""
    for producer in list(_open_producers):
        try:
            producer.flush()
        except MqworkerError as error:
            get_logger(part="producer").error(
                "producer_lost_calls", problem=str(error), lost=len(producer), hint="close() producers"
            )
