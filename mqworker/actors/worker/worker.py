"""Worker: runs task code. A crash here costs one delivery and nothing else.

Owns:     the deliveries it was given, until the dispatcher has accepted the report on them.
Receives: StandReady, RunDeliveries, ReportsAccepted, ListDeliveries, CancelDelivery, AbandonDelivery,
          StrikesSet, Drain (dispatcher); Drain (supervisor).
Sends:    WorkerReady, DeliveriesFinished, DeliveriesReturned, DeliveriesListed, RunsCounted, WorkerLeaving
          (dispatcher).
Never:    claims or settles: the dispatcher does. Its own connections are for early starts, for the
          announcements at its start, and for what tasks ask of the store.

Sync tasks run in the main thread, one after another (or in `threads`); async tasks run on an event loop in a
thread of its own, many at once. While a task takes long, the mail thread (mail_thread.py) does what the main
thread cannot: what is not begun goes back, what is finished is reported, mail is answered.

A worker outlives its dispatcher: it goes on with what it has, and tells the next dispatcher what that is.
"""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mqworker.actors.actor import SUPERVISOR, ActorLoop, Post, Watched
from mqworker.actors.early_start.take import EarlyStart
from mqworker.actors.mail import (
    AbandonDelivery,
    CancelDelivery,
    DeliveriesListed,
    DeliveriesReturned,
    DeliveryBuried,
    Drain,
    ListDeliveries,
    Mail,
    PeerAttached,
    PeerLost,
    ReportsAccepted,
    RunDeliveries,
    StandReady,
    StrikesSet,
    WorkerLeaving,
    WorkerReady,
)
from mqworker.actors.run_slot import RunSlots
from mqworker.actors.worker.lifetime import Announcement, WorkerLimits
from mqworker.actors.worker.mail_thread import SLOW_AFTER_MS, MailThread
from mqworker.actors.worker.pending_batches import PendingBatches
from mqworker.actors.worker.pool import TaskPool
from mqworker.actors.worker.report import Report
from mqworker.errors import InvalidMessage, TaskFailed
from mqworker.log import Logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import decode_record, encode_delivery, task_of
from mqworker.model.settlement import Bury, Release
from mqworker.model.strike import strike_of
from mqworker.tasks.running.run import TaskRunner

DISPATCHER = "dispatcher"
STINT_MS = 10
"""How long the worker runs tasks before it looks at its mail again."""


class Worker:
    """The actor; see the module's first lines."""

    def __init__(
        self,
        name: str,
        index: int,
        runner: TaskRunner,
        ready: WorkerReady,
        *,
        slots: RunSlots,
        early_start: EarlyStart,
        report: Report,
        limits: WorkerLimits,
        announcements: Sequence[Announcement],
        clock: Clock,
        log: Logger,
        other_models: Collection[str] = (),
    ) -> None:
        """`other_models` are queues other than work queues: only this worker has the records of those."""
        self.name = name
        self.is_done = False
        self._index = index
        self._runner = runner
        self._ready = ready
        self._slots = slots
        self._early_start = early_start
        self._report = report
        self._limits = limits
        self._announcements = announcements
        self._clock = clock
        self._log = log
        self._pending: deque[tuple[str, Delivery]] = deque()
        self._pool = TaskPool(
            runner,
            threads=ready.threads,
            open_table=lambda: slots.beside(index, ready.concurrency + ready.threads),
        )
        self._other_models = other_models
        self._stint_ms = STINT_MS
        self._batches = PendingBatches()
        self._running: tuple[str, Delivery] | None = None
        """What runs in the main thread."""
        self._running_together: Sequence[Delivery] = ()
        """All of it, where it is a batch."""
        self._mail_thread: MailThread | None = None
        self._enter_task: Callable[[], object] = lambda: None
        self._leave_task: Callable[[], object] = lambda: None
        self._interrupt: Callable[[], object] = lambda: None
        self._has_dispatcher = True
        self._awaits_word = False
        """Whether a new dispatcher has yet to say which of the pending deliveries are still ours."""
        self._buried: list[DeliveryBuried] = []
        self._is_draining = False
        self._is_ordered_out = False
        self._has_announced_leaving = False
        self._reason_to_leave: str | None = None

    def leave(self, reason: str) -> None:
        """Finish what is begun, and be replaced. For any thread."""
        self._reason_to_leave = reason
        self._pool.waker.wake()

    def share_mail(self, loop: ActorLoop, *, slow_after_s: float = SLOW_AFTER_MS / 1000) -> None:
        """Let a thread read and send mail while a task takes long. Called where the loop will run."""
        self._mail_thread = thread = MailThread(
            lambda: loop.serve(self.turn_beside_task), lambda: self._report.count, slow_after_s=slow_after_s
        )
        self._enter_task, self._leave_task = thread.enter_task, thread.leave_task

    def interrupt_by_signal(self) -> None:
        """Let a cancelled task be ended in its middle. Called in the main thread, where tasks run.

        Nothing is read or sent in the handler: it raises in the task that was cancelled, or does nothing.
        """
        signal.signal(signal.SIGUSR1, lambda *_: self._runner.interrupt_if_cancelled())
        signal.siginterrupt(signal.SIGUSR1, False)  # noqa: FBT003 - system calls of the task go on
        main_thread = threading.get_ident()
        self._interrupt = lambda: signal.pthread_kill(main_thread, signal.SIGUSR1)

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Take in work; `turn` does it."""
        match mail:
            case RunDeliveries(queue, fences, records, start_by_ms, accepted, stint_ms):
                self._report.accept(accepted)
                self._work_in_stints_of(stint_ms)
                take = self._take_together if mail.are_together else self._take
                take(queue, fences, records, start_by_ms)
            case ReportsAccepted(numbers):
                self._report.accept(numbers)
            case ListDeliveries(number):
                return self._list_deliveries(number)
            case StandReady(queue_by_channel, stale):
                self._early_start.stand_ready(queue_by_channel, now_ms)
                self._awaits_word = False
                return self._drop(stale)
            case PeerAttached(peer) if peer == DISPATCHER:
                return self._greet()
            case DeliveryBuried():
                self._buried.append(mail)  # hooks are code of the application: not here, where a task may run
            case CancelDelivery(message):
                self._cancel(MessageId(message))
            case AbandonDelivery(queue, fence):
                self._abandon(queue, fence)
            case PeerLost(peer) if peer == DISPATCHER:
                self._has_dispatcher = False
                # Pending deliveries may begin: they are given to no other worker before a new dispatcher has
                # heard from us, or has waited so long that we read of it before we begin the next one.
                self._early_start.stand_ready({}, now_ms)
            case Drain():
                self._is_draining = True
                self._is_ordered_out = self._is_ordered_out or sender == SUPERVISOR
            case StrikesSet(strikes):
                self._runner.strike([strike_of(each) for each in strikes])
        return ()

    def turn(self, now_ms: int) -> Iterator[Post]:
        """Run tasks for a stint, and report."""
        if (begun := self._early_start.take(self._may_begin, now_ms)) is not None:
            queue, handed_over = begun
            self._take(queue, [handed_over.fence], [handed_over.record], {})
        self._collect_finished()
        if self._pending and not self._awaits_word:
            self._run_for_a_stint(now_ms + self._stint_ms)
        self._collect_finished()
        yield from self._report.posts()
        yield from self._report.figures(now_ms)
        self._tell_hooks()
        yield from self._leaving(now_ms)
        for announcement in self._announcements:
            announcement.turn(now_ms)
        self.is_done = self._is_draining and self._is_free()

    def _is_free(self) -> bool:
        if self._pool.is_busy:
            return False
        if self._is_ordered_out:  # by then the last dispatcher is gone, and with it whoever would accept
            return not self._pending or self._awaits_word
        return not self._pending and self._report.is_accepted

    def turn_beside_task(self) -> Iterator[Post]:
        """Do what need not wait for the end of a long task. Called by the mail thread."""
        self._collect_finished()
        yield from self._report.posts()
        if self._awaits_word or not self._has_dispatcher:
            return  # nobody is there to take it back, or whoever is was told of all that we have
        returned: dict[str, list[int]] = {}
        while self._pending:
            queue, delivery = self._pending.popleft()
            returned.setdefault(queue, []).append(delivery.fence)
        self._batches.forget()
        for queue, fences in returned.items():
            yield Post(DISPATCHER, DeliveriesReturned(queue, fences))

    def next_turn_in_ms(self, now_ms: int) -> int:
        """At once while there is work."""
        if self._pending and not self._awaits_word:
            return 0
        listen_in_ms = self._early_start.next_turn_in_ms(now_ms)
        return 1_000 if listen_in_ms is None else min(1_000, listen_in_ms)

    def watched(self) -> Iterable[Watched]:
        """What threads and the event loop wake us with when they finished something; early starts."""
        return (self._pool.waker, *self._early_start.watched())

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "ran": self._report.count,
            "early_starts": self._early_start.count,
            "unpermitted": self._runner.unpermitted,
            "pending": len(self._pending),
            "beside": len(self._pool.running),
            "waits": self._runner.waits(self._clock.monotonic_ms()),
        }

    def close(self) -> None:
        """End the event loop and the threads."""
        self._pool.close()
        self._early_start.close()

    def _may_begin(self, record: bytes) -> bool:
        """Whether a message that was handed over can begin this moment; if not, the dispatcher decides."""
        if self._pending or self._is_draining or self._has_announced_leaving:
            return False
        task = self._ready.tasks.get(task_of(record).decode(errors="replace"))
        return task is not None and "batch" not in task  # a batch is gathered first

    def _take(
        self, queue: str, fences: Sequence[int], records: Sequence[bytes], start_by_ms: Mapping[int, int]
    ) -> None:
        for fence, record in zip(fences, records, strict=True):
            try:
                delivery = decode_record(record, fence)
            except InvalidMessage as error:
                unreadable = UnreadableDelivery(fence, record, str(error))
                self._report.add(queue, Bury(unreadable, "undecodable", evidence={"problem": str(error)}))
                continue
            if start_by_ms:
                delivery.start_by_ms = start_by_ms.get(fence, 0)
            if self._runner.is_async(delivery.task):
                self._pool.run_async(queue, delivery)
            elif self._ready.threads > 1:
                self._pool.run_in_thread(queue, delivery)
            else:
                self._pending.append((queue, delivery))

    def _take_together(
        self, queue: str, fences: Sequence[int], records: Sequence[bytes], start_by_ms: Mapping[int, int]
    ) -> None:
        """Take in a batch; piece by piece where its task takes none here, in other code than elsewhere."""
        name, deliveries = TaskName(task_of(records[0]).decode(errors="replace")), list[Delivery]()
        if len(fences) == 1 or not self._runner.takes_batches(name):
            self._take(queue, fences, records, start_by_ms)
            return
        for fence, record in zip(fences, records, strict=True):
            try:
                delivery = decode_record(record, fence)
            except InvalidMessage:
                self._take(queue, [fence], [record], {})  # which buries it
                continue
            delivery.start_by_ms = start_by_ms.get(fence, 0)
            deliveries.append(delivery)
        if deliveries:
            self._begin_together(queue, name, deliveries)

    def _begin_together(self, queue: str, task: TaskName, deliveries: Sequence[Delivery]) -> None:
        if self._runner.is_async(task):
            self._pool.run_together_async(queue, deliveries)
        elif self._ready.threads > 1:
            self._pool.run_together_in_thread(queue, deliveries)
        else:
            self._batches.note(queue, deliveries)
            self._pending.extend((queue, each) for each in deliveries)

    def _work_in_stints_of(self, stint_ms: int) -> None:
        """How long the dispatcher lets us work before we report."""
        if stint_ms != self._stint_ms:
            self._stint_ms = stint_ms
            if self._mail_thread is not None:
                self._mail_thread.be_patient(stint_ms / STINT_MS)

    def _greet(self) -> list[Post]:
        """Say to a dispatcher what we are and what we have, and report once more what nobody accepted."""
        self._has_dispatcher = True
        self._awaits_word = True
        self._report.posts()  # so that they are among the repeated ones
        held = [*self._pending, *((queue, each) for (queue, _), each in self._pool.running.items())]
        held += self._in_main_thread()
        finished = [(queue, each.delivery) for queue, each in self._report.unaccepted()]
        entries = [
            [
                queue,
                each.fence,
                each.task,
                encode_delivery(each) if queue in self._other_models else b"",
                self._first_of(queue, each),
            ]
            for queue, each in (*held, *finished)
            if isinstance(each, Delivery)
        ]
        self._has_announced_leaving = False  # to this one
        leaving = [Post(DISPATCHER, WorkerLeaving("drained"))] if self._is_draining else []
        return [Post(DISPATCHER, replace(self._ready, held=entries)), *leaving, *self._report.repeated()]

    def _in_main_thread(self) -> list[tuple[str, Delivery]]:
        if self._running is None:
            return []
        queue, delivery = self._running
        return [(queue, each) for each in self._running_together or (delivery,)]

    def _first_of(self, queue: str, delivery: Delivery) -> int:
        """By which fence the batch of a delivery is called; 0: it runs by itself."""
        if delivery in self._running_together:
            return self._running_together[0].fence
        return self._batches.first_of(queue, delivery.fence) or self._pool.first_of(queue, delivery.fence)

    def _drop(self, stale: Sequence[Sequence[Any]]) -> list[Post]:
        """Of these, give back what is not begun; what runs or has run is refused by its fence."""
        gone = {(queue, fence) for queue, fence in stale}
        dropped = [(queue, each.fence) for queue, each in self._pending if (queue, each.fence) in gone]
        if dropped:
            self._pending = deque(each for each in self._pending if (each[0], each[1].fence) not in gone)
        return [Post(DISPATCHER, DeliveriesReturned(queue, [fence])) for queue, fence in dropped]

    def _run_for_a_stint(self, stop_at_ms: int) -> None:
        if self._mail_thread is not None:
            self._mail_thread.begin_stint()
        while self._pending and not self._awaits_word:  # which a new dispatcher may change during a task
            self._running = queue, delivery = self._pending.popleft()
            if self._batches:
                self._run_with_others(queue, delivery)
            else:
                self._run(queue, delivery)
            if self._clock.monotonic_ms() >= stop_at_ms:
                break
        self._running = None
        if self._mail_thread is not None:
            self._mail_thread.end_stint()
        self._slots.end(self._index)

    def _run(self, queue: str, delivery: Delivery) -> None:
        hard_ms = self._runner.hard_timeout_ms(delivery.task)
        deadline_ms = 0 if hard_ms is None else self._clock.monotonic_ms() + hard_ms
        self._slots.begin(self._index, queue, delivery.fence, deadline_ms)
        self._enter_task()
        try:
            settlement = self._runner.run(delivery, queue)
        finally:
            self._leave_task()
        self._report.add(queue, settlement)

    def _run_with_others(self, queue: str, delivery: Delivery) -> None:
        """Run a delivery with those of its batch, if it has one."""
        others = self._batches.take_others(queue, delivery.fence, self._pending)
        if not others:
            self._run(queue, delivery)
            return
        self._running_together = deliveries = [delivery, *others]
        hard_ms = self._runner.hard_timeout_ms(delivery.task)
        deadline_ms = 0 if hard_ms is None else self._clock.monotonic_ms() + hard_ms
        self._slots.begin_together(self._index, queue, delivery.fence, deadline_ms)
        self._enter_task()
        try:
            settlements = self._runner.run_together(deliveries, queue)
        finally:
            self._leave_task()
        self._running_together = ()
        for settlement in settlements:
            self._report.add(queue, settlement)

    def _abandon(self, queue: str, fence: int) -> None:
        """Somebody else has this delivery: do not begin it, end it where that is possible, or tell it."""
        begun_not = [each for each in self._pending if each[0] == queue and each[1].fence == fence]
        for each in begun_not:
            self._pending.remove(each)
            self._report.add(queue, Release(each[1]))  # refused, but then the dispatcher knows
        self._runner.note_lost(queue, fence)
        self._pool.abandon(queue, fence)

    def _cancel(self, message: MessageId) -> None:
        """Stop what runs; what has not begun goes back, and the queue knows that it was cancelled."""
        for waiting in [each for each in self._pending if each[1].id == message]:
            self._pending.remove(waiting)
            self._report.add(waiting[0], Release(waiting[1]))
        self._runner.cancel(message)
        self._pool.cancel(message)
        if any(each.id == message for _, each in self._in_main_thread()):
            # The mail thread has read this while the main thread is in the task: only a signal gets there.
            self._interrupt()

    def _collect_finished(self) -> None:
        for queue, settlement in self._pool.finished():
            self._report.add(queue, settlement)

    def _list_deliveries(self, number: int) -> Sequence[Post]:
        """Everything that was given to this worker and not yet reported or returned."""
        self._collect_finished()
        reported = self._report.posts()  # before the list: what is in neither, nobody has
        fences: dict[str, list[int]] = {}
        in_order = (*self._in_main_thread(), *self._pending)
        for queue, fence in (*((queue, each.fence) for queue, each in in_order), *self._pool.running):
            fences.setdefault(queue, []).append(fence)
        return [*reported, Post(DISPATCHER, DeliveriesListed(number, fences))]

    def _tell_hooks(self) -> None:
        buried, self._buried = self._buried, []
        for mail in buried:
            with suppress(InvalidMessage):
                tell = self._runner.tell_buried if mail.is_buried else self._runner.tell_crashed
                tell(decode_record(mail.record, mail.fence), mail.queue, _failed(mail))

    def _leaving(self, now_ms: int) -> Sequence[Post]:
        if self._has_announced_leaving:
            return ()
        reason = self._reason_to_leave or self._limits.reached(self._report.count, now_ms)
        if reason is None:
            return ()
        self._has_announced_leaving = True
        self._log.info("worker_leaving", reason=reason)
        return (Post(DISPATCHER, WorkerLeaving(reason)),)


def _failed(mail: DeliveryBuried) -> TaskFailed:
    return TaskFailed(
        f"{mail.reason}: {mail.message}",
        reason=mail.reason,
        error=mail.error,
        message=mail.message,
        traceback="",
    )
