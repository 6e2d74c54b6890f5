"""Job: the handle of one message. Look at it, wait for it, cancel it, put it back in line.

`ResultWatch` waits for the jobs of one queue: one thread and one subscription for everybody in this process.
The channel `done` tells of ends at once. It may lose a message, so what is awaited is also asked for slowly;
and what left no result behind is looked for in the queue, more and more rarely. However many are awaited,
both take little of a second. The thread ends when nobody waits any more. Waiters get futures, which threads
and event loops can both await.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from mqworker.errors import MqworkerError, ResultTimeout, StillRunning, StoreUnavailable
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import MessageId, QueueName
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.subscription import RESUBSCRIBED, Subscription
from mqworker.tasks.context import current_context
from mqworker.tasks.job_steps import Cancelling
from mqworker.tasks.outcome import (
    Cancelled,
    Expired,
    JobStatus,
    NotKept,
    Outcome,
    Succeeded,
    decode_outcome,
    value_of,
)
from mqworker.tasks.payloads import opened_result
from mqworker.tasks.registry import TaskDefinition
from mqworker.tasks.running.progress import Progress

if TYPE_CHECKING:
    from mqworker.tasks.connections import Sender
    from mqworker.tasks.workflows.job import WorkflowJob

R = TypeVar("R")

CANCEL_TIMEOUT_S = 5.0
_ASK_AGAIN_S = 1.0
"""The wish to cancel travels as a wake-up, which may be lost: so it is told again."""
POLL_MS = 1_000
POLL_WITHOUT_CHANNEL_MS = 50
IDLE_MS = 5_000
FIRST_SEARCH_MS = 2_000
LONGEST_SEARCH_PAUSE_MS = 30_000
SEARCH_BUDGET_MS = 5
"""A search reads the line: for each of thousands that wait in a long one, the server would do nothing else.
When so much of a poll went into those that are still there, the others are left to the next one."""
MOST_POLLED = 1_000
BATCH = 1_000
CLOSE_S = 2.0


class Job(Generic[R]):
    """One message and what becomes of it."""

    __slots__ = ("_definition", "_outcome", "_sender", "id", "is_new")

    def __init__(
        self,
        message: MessageId,
        sender: Sender,
        definition: TaskDefinition | None = None,
        *,
        is_new: bool | None,
    ) -> None:
        self.id = message
        self.is_new = is_new
        """False when a message that was there already took the place of this call; None when unknown."""
        self._sender = sender
        self._definition = definition
        self._outcome: Outcome | None = None

    @property
    def queue(self) -> QueueName:
        """The queue it was put in."""
        return self._sender.work.name

    def status(self) -> JobStatus:
        """Where it is now. A message in the line is searched for from its newest end."""
        return self._sender.follow(self._sender.steps.status(self.id))

    async def astatus(self) -> JobStatus:
        """`status` for asyncio."""
        return await self._sender.afollow(self._sender.steps.status(self.id))

    def result(self, timeout: float | None = None) -> R:
        """Wait until the job ends and give what the task returned.

        Raises `TaskFailed`, `TaskCancelled`, `TaskExpired`, `ResultNotKept`; `ResultTimeout` after so many
        seconds, in which case the job goes on; 0 only looks whether it has ended.
        """
        if self._outcome is None and timeout == 0:
            self._outcome = self._sender.follow(self._sender.steps.outcome(self.id))
        if self._outcome is None:
            future = self.begin_wait()
            try:
                self._outcome = future.result(timeout)
            except TimeoutError as error:
                future.cancel()
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same as `result`
        """`result` for asyncio."""
        if self._outcome is None and timeout == 0:
            self._outcome = await self._sender.afollow(self._sender.steps.outcome(self.id))
        if self._outcome is None:
            future = self.begin_wait()
            try:
                async with asyncio.timeout(timeout):
                    self._outcome = await asyncio.wrap_future(future)
            except TimeoutError as error:
                raise self._not_in_time(timeout) from error
        return self._value(self._outcome)

    def cancel(self, *, kill: bool = False, timeout: float = CANCEL_TIMEOUT_S) -> bool:
        """Take it out while it waits; where it runs, stop it, and wait so many seconds until it has stopped.

        True when it is cancelled, False when it has ended otherwise; raises `StillRunning` when it was asked
        to stop and still runs. An async task is cancelled as asyncio does it; in a sync one `TaskCancelled`
        is raised, unless the worker has threads: there it has to look at `ctx.is_cancelled`. Whatever it does
        then, it is not retried. `kill` ends the worker instead; what else ran there runs again. A task that
        cancels itself is told True, and goes on until it stops. All that it has spawned is cancelled too.
        """
        tree = self._tree()
        is_tree_cancelled = tree.cancel() if tree is not None else False
        try:
            return self._cancel(kill=kill, timeout=timeout) or is_tree_cancelled
        finally:  # it may have begun to spawn meanwhile
            if tree is not None and not is_tree_cancelled:
                tree.cancel()

    def _cancel(self, *, kill: bool, timeout: float) -> bool:
        steps, left_s = self._sender.steps, timeout
        state = self._sender.follow(steps.cancel(self.id, kill=kill))
        if state is Cancelling.ASKED and self._is_cancelled_by_itself():
            return True
        future = self.begin_wait() if state is Cancelling.ASKED else None
        while future is not None and state is Cancelling.ASKED:
            try:
                return isinstance(future.result(_next_look_s(left_s)), Cancelled)
            except TimeoutError as error:
                left_s -= _ASK_AGAIN_S
                if left_s <= 0:
                    future.cancel()
                    raise self._not_stopped(timeout) from error
            state = self._sender.follow(steps.cancel(self.id, kill=kill))
        return state is Cancelling.CANCELLED

    async def acancel(self, *, kill: bool = False, timeout: float = CANCEL_TIMEOUT_S) -> bool:  # noqa: ASYNC109
        """`cancel` for asyncio."""
        tree = self._tree()
        is_tree_cancelled = await tree.acancel() if tree is not None else False
        try:
            return await self._acancel(kill=kill, timeout=timeout) or is_tree_cancelled
        finally:
            if tree is not None and not is_tree_cancelled:
                await tree.acancel()

    async def _acancel(self, *, kill: bool, timeout: float) -> bool:  # noqa: ASYNC109
        steps, left_s = self._sender.steps, timeout
        state = await self._sender.afollow(steps.cancel(self.id, kill=kill))
        if state is Cancelling.ASKED and self._is_cancelled_by_itself():
            return True
        future = self.begin_wait() if state is Cancelling.ASKED else None
        while future is not None and state is Cancelling.ASKED:
            ended, _ = await asyncio.wait([asyncio.wrap_future(future)], timeout=_next_look_s(left_s))
            if ended:
                return isinstance(ended.pop().result(), Cancelled)
            left_s -= _ASK_AGAIN_S
            if left_s <= 0:
                future.cancel()
                raise self._not_stopped(timeout)
            state = await self._sender.afollow(steps.cancel(self.id, kill=kill))
        return state is Cancelling.CANCELLED

    def retry(self) -> bool:
        """Put a failed job back in line, its counts beginning anew; False when it is not a dead letter."""
        self._outcome = None
        return self._sender.follow(self._sender.steps.retry(self.id))

    async def aretry(self) -> bool:
        """`retry` for asyncio."""
        self._outcome = None
        return await self._sender.afollow(self._sender.steps.retry(self.id))

    def progress(self) -> Progress | None:
        """What the task last said about how far it has come; None when it said nothing."""
        return self._sender.follow(self._sender.steps.progress(self.id))

    async def aprogress(self) -> Progress | None:
        """`progress` for asyncio."""
        return await self._sender.afollow(self._sender.steps.progress(self.id))

    def begin_wait(self) -> Future[Outcome]:
        """The outcome to come, for those who wait for several jobs (joint_wait.py); this never blocks."""
        if self._outcome is not None:
            ended: Future[Outcome] = Future()
            ended.set_result(self._outcome)
            return ended
        future = self._sender.watch.watch(self.id, is_fresh=bool(self.is_new))
        future.add_done_callback(self._remember)
        context = current_context()
        if context is not None:  # a task waits: `status` shows for what, for it may wait for ever
            context.begin_wait(self.queue, self.id, SystemClock().monotonic_ms())
            future.add_done_callback(lambda _: context.end_wait(self.queue, self.id))
        return future

    def __repr__(self) -> str:
        """Id and queue: what `mqworker job show` asks for."""
        return f"<Job {self.id} in {self.queue}>"

    def _tree(self) -> WorkflowJob[object] | None:
        """What it has spawned, if anything; a member's is that of its workflow, and stays."""
        if "~" in self.id or self._sender.connections is None:
            return None
        from mqworker.tasks.workflows.job import tree_of  # noqa: PLC0415 - which knows of jobs

        return tree_of(self.id, self._sender.connections)

    def _remember(self, future: Future[Outcome]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._outcome = future.result()

    def _value(self, outcome: Outcome) -> R:
        rebuild = None if self._definition is None else self._definition.rebuild_result
        # The task's annotation says what it returns; the bytes cannot.
        return cast("R", value_of(self.id, self._opened(outcome), rebuild))

    def _opened(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Succeeded):
            return outcome
        return Succeeded(opened_result(self._sender.payloads, self.queue, self.id, outcome.result))

    def _is_cancelled_by_itself(self) -> bool:
        """Whether it is the task that runs here: it knows now, and must not wait for its own end."""
        context = current_context()
        if context is None or context.id != self.id:
            return False
        context.request_cancel()
        return True

    def _not_stopped(self, timeout: float) -> StillRunning:
        return StillRunning(
            f"job {self.id} in {self.queue} was asked to stop and still runs after {timeout:g} s; "
            "it is not retried; cancel(kill=True) ends its worker"
        )

    def _not_in_time(self, timeout: float | None) -> ResultTimeout:
        return ResultTimeout(f"job {self.id} in {self.queue} did not end within {timeout:g} s")


def _next_look_s(left_s: float) -> float:
    return max(0.0, min(left_s, _ASK_AGAIN_S))


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
            is_poked = bool(self._new)
            self._new.append(message)
            if self._thread is None:
                self._start_thread()
            if not is_poked:
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
        for inherited in (getattr(self, "_ear", None), getattr(self, "_mouth", None)):
            if inherited is not None:
                inherited.close()  # of the parent of a fork, which has its own
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
        self._drain_pokes()  # first: a poke that comes after the new ones were taken is for the next turn
        with self._lock:
            new, self._new = self._new, []
        self._check(new)
        ended, is_subscribed_anew = _ends_heard(subscription)
        self._check(ended, have_ended=True)
        if is_poll_due or is_subscribed_anew:
            self._drop_abandoned()
            self._check(self._next_polled(len(self._awaited) if is_subscribed_anew else MOST_POLLED))

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
                elif have_ended:
                    self._search(message)
        if not have_ended:
            self._search_for_some(known)

    def _next_polled(self, most: int) -> list[MessageId]:
        """Some of those that are awaited, by turns."""
        with self._lock:
            chosen = list(islice(self._awaited, most))
            for message in chosen:
                self._awaited[message] = self._awaited.pop(message)
        return chosen

    def _search_for_some(self, messages: Iterable[MessageId]) -> None:
        """Search for those of these that are due, the longest first, as many as the budget allows."""
        now_ms = self._clock.monotonic_ms()
        left = [(self._awaited[each].search_at_ms, each) for each in messages if each in self._awaited]
        budget_ms = SEARCH_BUDGET_MS
        for _, message in sorted(each for each in left if each[0] <= now_ms):
            began_ms = self._clock.monotonic_ms()
            awaited = self._awaited[message]
            awaited.search_at_ms = began_ms + awaited.pause_ms
            awaited.pause_ms = min(LONGEST_SEARCH_PAUSE_MS, 2 * awaited.pause_ms)
            self._search(message)
            if message not in self._awaited:
                continue  # it is gone, and so may be the others
            budget_ms -= self._clock.monotonic_ms() - began_ms
            if budget_ms <= 0:
                return

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


def _ends_heard(subscription: Subscription | None) -> tuple[list[MessageId], bool]:
    """What ended as far as we were told, at once; and whether something may have been missed before."""
    ended: list[MessageId] = []
    is_anew = False
    while subscription and (arrived := subscription.get(0)):
        is_anew = is_anew or arrived == RESUBSCRIBED
        ended += [MessageId(each) for each in arrived[1].decode(errors="replace").split()]
    return ended, is_anew


def _give(futures: Iterable[Future[Outcome]], outcome: Outcome | Exception) -> None:
    for future in futures:
        if not future.set_running_or_notify_cancel():
            continue  # its waiter gave up
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
