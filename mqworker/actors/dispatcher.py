"""Dispatcher: moves messages from ready to settled.

Owns:     the credit of each worker and the deliveries in flight.
Receives: WorkerReady, DeliveriesFinished, DeliveriesReturned, WorkerLeaving (worker);
          WorkerExited, RetireWorker, Drain (supervisor).
Sends:    RunDeliveries, CancelDelivery, Drain (worker); PermitsWanted (rate limiter);
          KillWorker, NudgeWorker (supervisor).
Never:    decodes a body, runs user code, or blocks on a pipe.

One turn is one round trip per queue that has something to say: what workers finished is settled, and as much
is claimed as they have room for, together. Then the claimed deliveries are handed out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from mqworker.actors.actor import SUPERVISOR, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher_crew import Crew, Flight, Hand, Idle
from mqworker.actors.dispatcher_estimates import BATCH_MS, RunTimes
from mqworker.actors.dispatcher_losses import EVIDENCE_WAIT_MS, Losses
from mqworker.actors.dispatcher_queue import LARGEST_CLAIM, DispatchedQueue, task_of
from mqworker.actors.dispatcher_stock import StockTaking
from mqworker.actors.dispatcher_verdicts import (
    verdict_on_lost_flight,
    verdicts_on_killed_by_drain,
    verdicts_on_lost_hand,
)
from mqworker.actors.mail import (
    CancelDelivery,
    DeliveriesFinished,
    DeliveriesReturned,
    Drain,
    KillWorker,
    Mail,
    NudgeWorker,
    PeerAttached,
    PeerLost,
    PermitsWanted,
    RetireWorker,
    RunDeliveries,
    WorkerExited,
    WorkerLeaving,
    WorkerReady,
)
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.run_slot import Running, RunSlots
from mqworker.actors.wake_ups import WakeUps
from mqworker.actors.wiring import logger_of, open_store, queue_options, run_actor
from mqworker.errors import MqworkerError, StoreFull, StoreRefused, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.names import ConsumerName, QueueName
from mqworker.queues.work_calls import WorkQueueOptions
from mqworker.store.store import Store

POLL_MS = 1_000
"""A lost wake-up costs this much, never a message."""
NUDGE_AFTER_MS = 20
"""So long may a worker with several deliveries in its hands be silent before it is asked to return some."""
OUTAGE_PAUSE_MS = 200
STORE_TROUBLE = (StoreUnavailable, StoreRefused, StoreFull)

ASK_EVERY_MS = 50

WORKER = "worker:"
RATE_LIMITER = "rate_limiter"


class Dispatcher:
    """The actor; see the module's first lines."""

    name = "dispatcher"

    def __init__(
        self,
        store: Store,
        queues: Sequence[DispatchedQueue],
        consumer: ConsumerName,
        slots: RunSlots,
        *,
        options: WorkQueueOptions,
        log: Logger,
    ) -> None:
        self._store = store
        self._queue_by_name: dict[str, DispatchedQueue] = {queue.name: queue for queue in queues}
        self._has_fixed_queues = bool(queues)
        self._consumer = consumer
        self._slots = slots
        self._stock = StockTaking(store, log)
        self._options = options
        self._log = log
        self._crew = Crew()
        self._lost = Losses()
        self._times = RunTimes()
        self._unassigned: deque[tuple[DispatchedQueue, int, bytes]] = deque()
        self._wake_ups = WakeUps(store)
        self._poll_at_ms = 0
        self._ask_at_ms = 0
        self._drain_until_ms: int | None = None
        self._cancelled: list[Post] = []
        self._settled = 0
        self.is_done = False

    # Mail

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Answer one mail."""
        match mail:
            case DeliveriesFinished():
                self._finish(mail, self._crew[sender], now_ms)
            case DeliveriesReturned(queue, fences):
                self._take_back(self._crew[sender], queue, fences, now_ms)
            case WorkerReady():
                self._welcome(mail, sender, now_ms)
            case PeerAttached(peer) if peer.startswith(WORKER):
                self._crew.join(peer)
            case PeerLost(peer) if peer.startswith(WORKER):
                self._lose(peer, now_ms)
            case WorkerExited(worker, cause):
                self._lost.note_death(self._crew, worker, cause)
            case WorkerLeaving():
                self._crew[sender].is_leaving = True
            case RetireWorker(worker) if (hand := self._crew.get(worker)) is not None:
                hand.is_leaving = True
            case Drain(grace_ms):
                return self._begin_drain(now_ms + grace_ms)
            case _:
                pass
        return ()

    # Time

    def turn(self, now_ms: int) -> Sequence[Post]:
        """Settle, claim and hand out; look after workers that died, overran or sit on work."""
        self._hear_wake_ups()
        asked = self._settle_for_the_lost(now_ms)
        if now_ms >= self._poll_at_ms:
            self._poll_at_ms = now_ms + POLL_MS
            for queue in self._queues():
                queue.may_have_messages = True
        self._exchange_with_queues(now_ms)
        self._take_stock(now_ms)
        posts, self._cancelled = [*asked, *self._cancelled, *self._hand_out(now_ms)], []
        posts += self._look_after_workers(now_ms)
        posts += self._ask_for_permits(now_ms)
        if self._drain_until_ms is not None:
            posts += self._drain(now_ms)
        return posts

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next poll, or sooner while workers have something in their hands."""
        wait_ms = self._poll_at_ms - now_ms
        idle = self._idle()
        unsettled = [queue for queue in self._queues() if queue.has_unsettled or queue.has_ackable(idle)]
        if unsettled:
            return max(0, min(wait_ms, *(queue.resume_at_ms - now_ms for queue in unsettled)))
        if self._lost or any(hand.flights for hand in self._crew) or self._drain_until_ms is not None:
            return min(wait_ms, NUDGE_AFTER_MS)
        if any(queue.is_limited for queue in self._queues()):
            return min(wait_ms, ASK_EVERY_MS)
        return wait_ms

    def watched(self) -> Iterable[Watched]:
        """The subscription to wake-ups."""
        return self._wake_ups.watched()

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "settled": self._settled,
            "lost": len(self._lost),
            "in_flight": sum(len(hand.flights) for hand in self._crew),
            "workers": {hand.name: len(hand.flights) for hand in self._crew},
            "queues": sorted(self._queue_by_name),
            "is_store_up": not any(queue.resume_at_ms for queue in self._queues()),
            "batch_size": self._times.batch_size(),
        }

    # From claim to hand-out

    def _exchange_with_queues(self, now_ms: int) -> None:
        room, idle = self._room(), self._idle()
        # Those in trouble last: one shard of a cluster that hangs must not hold back the others.
        for queue in sorted(self._queues(), key=lambda each: (each.resume_at_ms > 0, each.worker_ms)):
            if now_ms < queue.resume_at_ms:
                continue
            wanted = room if queue.may_have_messages else 0
            exchange = queue.next_exchange(self._store, wanted, idle)
            if exchange is None:
                continue
            try:
                claimed = queue.complete(self._store.attempt(exchange))
            except STORE_TROUBLE as error:
                self._suspend(queue, error, now_ms)
                return  # one wait for an answer in a turn: in between, pings are answered
            if queue.resume_at_ms:
                self._log.info("store_resumed", queue=queue.name)
                queue.resume_at_ms = 0
                self._stock.hurry(queue, now_ms)
            room -= len(claimed)
            self._unassigned.extend((queue, fence, record) for fence, record in claimed)

    def _room(self) -> int:
        if self._drain_until_ms is not None:
            return 0
        waiting = len(self._unassigned) + sum(len(queue.unacked) for queue in self._queues())
        return max(0, self._crew.room(self._times.batch_size()) - waiting)

    def _idle(self) -> Idle:
        return Idle() if self._drain_until_ms is not None else self._crew.idle(len(self._unassigned))

    def _suspend(self, queue: DispatchedQueue, error: MqworkerError, now_ms: int) -> None:
        if not queue.resume_at_ms:
            self._log.warning("store_unavailable", queue=queue.name, reason=str(error))
        queue.resume_at_ms = now_ms + OUTAGE_PAUSE_MS

    def _take_stock(self, now_ms: int) -> None:
        for queue in self._queues():
            if not self._stock.is_due(queue, now_ms):
                continue
            known = {fence for each, fence, _ in self._unassigned if each is queue}
            known |= {fence for fence, _ in queue.unacked}
            try:
                self._stock.take(queue, known, [*self._crew, *self._lost.hands()], now_ms)
            except STORE_TROUBLE as error:
                self._suspend(queue, error, now_ms)
                return

    def _hand_out(self, now_ms: int) -> list[Post]:
        batches: dict[tuple[str, str], RunDeliveries] = {}
        waiting: deque[tuple[DispatchedQueue, int, bytes]] = deque()
        hand: Hand | None = None
        while self._unassigned:
            queue, fence, record = self._unassigned.popleft()
            task = task_of(record)
            expected_ms = self._times.of(task)
            is_async = queue.is_async(task)
            is_alone = expected_ms is None or expected_ms > BATCH_MS or queue.is_delicate(record, task)
            if is_alone or is_async or hand is None or not hand.has_room(expected_ms or 0.0):
                hand = self._crew.choose(None if is_alone else expected_ms, is_async=is_async)
            if hand is None:
                waiting.append((queue, fence, record))
                continue
            if not hand.flights:
                hand.last_report_ms = now_ms
                hand.was_nudged = False
            hand.take(
                fence,
                Flight(queue.name, record, expected_ms or BATCH_MS, is_alone and not is_async, is_async),
            )
            batch = batches.get((hand.name, queue.name))
            if batch is None:
                batch = batches[hand.name, queue.name] = RunDeliveries(queue.name, [], [])
            batch.fences.append(fence)
            batch.records.append(record)
            if is_alone or is_async:
                hand = None
        self._unassigned = waiting
        return [Post(worker, batch) for (worker, _), batch in batches.items()]

    def _finish(self, mail: DeliveriesFinished, hand: Hand, now_ms: int) -> None:
        for fence in mail.fences:
            hand.drop(fence)
        hand.last_report_ms = now_ms
        hand.was_nudged = False
        self._times.note(mail.run_ms_by_task)
        queue = self._queue_by_name[mail.queue]
        queue.charge(sum(total_ms for _, total_ms in mail.run_ms_by_task.values()))
        queue.add_settlement(mail.arguments)
        self._settled += len(mail.fences)

    def _take_back(self, hand: Hand, queue: str, fences: Sequence[int], now_ms: int) -> None:
        for fence in reversed(fences):
            flight = hand.drop(fence)
            if flight is not None:
                self._unassigned.appendleft((self._queue_by_name[queue], fence, flight.record))
        hand.last_report_ms = now_ms

    def _ask_for_permits(self, now_ms: int) -> list[Post]:
        """Say how much room there is for limited messages: they wait in Redis until then."""
        room = self._room()
        if room == 0 or now_ms < self._ask_at_ms:
            return []
        self._ask_at_ms = now_ms + ASK_EVERY_MS
        limited = [queue for queue in self._queues() if queue.is_limited]
        return [Post(RATE_LIMITER, PermitsWanted(queue.name, min(room, LARGEST_CLAIM))) for queue in limited]

    # Workers

    def _welcome(self, mail: WorkerReady, sender: str, now_ms: int) -> None:
        hand = self._crew[sender]
        hand.tasks, hand.threads, hand.concurrency = mail.tasks, mail.threads, mail.concurrency
        hand.is_ready, hand.last_report_ms = True, now_ms
        for name, options in mail.queues.items():
            queue = self._queue_by_name.get(name)
            if queue is None and not self._has_fixed_queues:
                queue = DispatchedQueue(QueueName(name), self._consumer, self._options)
                self._queue_by_name[name] = queue
            if queue is not None:
                queue.learn(options.get("weight", 1), mail.tasks)

    def _lose(self, worker: str, now_ms: int) -> None:
        # Aside at once, with what its slot says: a new worker of this name may write there in a moment.
        hand = self._crew.leave(worker)
        if hand is not None:
            self._lost.add(hand, self._slots.running(_index(worker)), now_ms)

    def _settle_for_the_lost(self, now_ms: int) -> list[Post]:
        for lost in self._lost.take_dead(self._crew, now_ms):
            self._settle_flights_of(lost.hand, lost.running, lost.hand.cause or "unknown")
        # What a deaf one runs is nobody else's before it is dead.
        deaf = self._lost.take_deaf(now_ms)
        return [Post(SUPERVISOR, KillWorker(worker, "its pipe broke")) for worker in deaf]

    def _settle_flights_of(self, hand: Hand, running: Running | None, cause: str) -> None:
        if self._drain_until_ms is not None:
            verdicts = verdicts_on_killed_by_drain(hand)
        else:
            verdicts = verdicts_on_lost_hand(hand, running, cause)
        for name, settlements in verdicts.items():
            self._queue_by_name[name].settle(settlements)
        if hand.flights:
            self._log.warning("worker_lost", worker=hand.name, cause=cause, deliveries=len(hand.flights))

    def _look_after_workers(self, now_ms: int) -> list[Post]:
        posts: list[Post] = []
        for hand in self._crew:
            if hand.is_leaving and hand.is_ready and not hand.flights:
                hand.is_ready = False
                posts.append(Post(hand.name, Drain(0)))
            if not hand.flights:
                continue
            running = self._slots.running(_index(hand.name))
            if running is not None and running.is_over(now_ms) and running.fence in hand.flights:
                posts.append(Post(SUPERVISOR, KillWorker(hand.name, "hard time-out")))
            sequential = len(hand.flights) - hand.asynchronous
            if sequential > 1 and not hand.was_nudged and now_ms - hand.last_report_ms > NUDGE_AFTER_MS:
                hand.was_nudged = True
                posts.append(Post(SUPERVISOR, NudgeWorker(hand.name)))
        return posts

    # Wake-ups

    def _hear_wake_ups(self) -> None:
        for channel, text in self._wake_ups.heard(queue.keys.meta for queue in self._queues()):
            if text.startswith(b"cancel "):
                self._cancel(text[7:])
                continue
            for queue in self._queues():
                if channel in (queue.keys.meta, "") and not queue.may_have_messages:
                    queue.wake(min(each.worker_ms for each in self._queues()))

    def _cancel(self, message: bytes) -> None:
        for hand in self._crew:
            if any(flight.record.startswith(message + b" ", 25) for flight in hand.flights.values()):
                self._cancelled.append(Post(hand.name, CancelDelivery(message.decode())))

    # The end

    def _begin_drain(self, until_ms: int) -> Sequence[Post]:
        self._drain_until_ms = until_ms
        return [Post(SUPERVISOR, NudgeWorker(hand.name)) for hand in self._crew if len(hand.flights) > 1]

    def _drain(self, now_ms: int) -> list[Post]:
        for queue in self._queues():
            self._unassigned.extend((queue, fence, record) for fence, record in queue.unacked)
            queue.unacked.clear()
        while self._unassigned:
            queue, fence, record = self._unassigned.pop()
            queue.settle([verdict_on_lost_flight(fence, record, {}, "", was_running=False)])
        in_flight = bool(self._lost) or any(hand.flights for hand in self._crew)
        if not in_flight and not self._has_unsettled():
            self.is_done = True
            return [Post(hand.name, Drain(0)) for hand in self._crew]
        if in_flight and self._drain_until_ms is not None and now_ms >= self._drain_until_ms:
            self._drain_until_ms = now_ms + EVIDENCE_WAIT_MS
            return [Post(SUPERVISOR, KillWorker(hand.name, "drain")) for hand in self._crew if hand.flights]
        return []

    def _has_unsettled(self) -> bool:
        return any(queue.has_unsettled for queue in self._queues())

    def _queues(self) -> Iterable[DispatchedQueue]:
        return self._queue_by_name.values()


def _index(worker: str) -> int:
    return int(worker.removeprefix(WORKER))


def main(control: Mailbox, start: ChildStart) -> int:
    """The dispatcher's process."""
    consumer, options = ConsumerName(start.consumer), queue_options(start.settings)
    queues = [DispatchedQueue(QueueName(name), consumer, options) for name in start.settings.queues]
    slots = RunSlots(start.slots_path)
    dispatcher = Dispatcher(open_store(start), queues, consumer, slots, options=options, log=logger_of(start))
    return run_actor(dispatcher, control, start)
