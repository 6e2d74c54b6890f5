"""Dispatcher: moves messages from ready to settled.

Owns:     the credit of each worker and the deliveries in flight.
Receives: WorkerReady, DeliveriesFinished, DeliveriesReturned, DeliveriesListed, RunsCounted, WorkerLeaving
          (worker); WorkerExited, RetireWorker, KeepWorkers, Drain (supervisor).
Sends:    StandReady, RunDeliveries, ReportsAccepted, ListDeliveries, CancelDelivery, AbandonDelivery,
          DeliveryBuried, StrikesSet, Drain (worker); PermitsWanted (rate limiter); KillWorker (supervisor).
Never:    decodes a body, runs user code, or blocks on a pipe.

One turn is one round trip per queue that has something to say: what workers finished is settled, and as much
is claimed as they have room for, together. Then the claimed deliveries are handed out. This module says in
which order things happen; what is decided stands beside it:

  queue.py           exchanges with work queues       foreign_queue.py   queues of other models
  hand_out.py        who gets what                    give_back.py       what nobody here can run soon
  workers.py         room, credit and run times       worker_care.py     who is asked, stopped or let go
  lost_workers.py    the judge of dead workers        reconciliation.py  the server's view against ours
  permits.py         room for limited messages        gathering.py       batches that are not full yet
  adoption.py        what workers hold from the dispatcher before this one: they outlive it
  records.py         what is kept of runs for people  strikes.py         calls that are not to be run
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mqworker.actors.actor import SUPERVISOR, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher.adoption import Adoption, Predecessor, read_held
from mqworker.actors.dispatcher.foreign_queue import ForeignQueues, foreign_queues_of
from mqworker.actors.dispatcher.give_back import GiveBack, release_all
from mqworker.actors.dispatcher.hand_out import HandOut
from mqworker.actors.dispatcher.lost_workers import (
    EVIDENCE_WAIT_MS,
    PIPE_BROKE,
    CrashReports,
    LostWorker,
    LostWorkers,
    settlements_of,
)
from mqworker.actors.dispatcher.permits import FIRST_LIMITED, PermitRequests
from mqworker.actors.dispatcher.queue import (
    STORE_TROUBLE,
    Claimed,
    Claiming,
    DispatchedQueue,
    DispatchedQueues,
    Receipt,
    Room,
)
from mqworker.actors.dispatcher.reconciliation import Reconciliation
from mqworker.actors.dispatcher.records import Records, records_of
from mqworker.actors.dispatcher.run_times import RunTimes
from mqworker.actors.dispatcher.strikes import StrikeWatch
from mqworker.actors.dispatcher.worker_care import (
    LOOK_EVERY_MS,
    WORKER,
    Stop,
    WorkerCare,
    posts_to_stop,
    slot_of,
    stop_in,
)
from mqworker.actors.dispatcher.workers import Idle, Workers, WorkerState
from mqworker.actors.early_start.offer import LOOK_AFTER_MS, EarlyStarts
from mqworker.actors.early_start.tickets import Tickets
from mqworker.actors.gateway.serving import run_dispatcher
from mqworker.actors.mail import (
    DeliveriesFinished,
    DeliveriesListed,
    DeliveriesReturned,
    Drain,
    KeepWorkers,
    KillWorker,
    Mail,
    PeerAttached,
    PeerLost,
    ReportsAccepted,
    RetireWorker,
    StandReady,
    WorkerExited,
    WorkerLeaving,
    WorkerReady,
)
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.run_slot import RunSlots
from mqworker.actors.wake_ups import WakeUps
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options
from mqworker.log import Logger
from mqworker.model.names import ConsumerName
from mqworker.store.link.subscription import ADDED
from mqworker.store.store import Store

POLL_MS = 1_000
"""A lost wake-up delays a message by this much, by more on a node with hundreds of queues."""
ACCEPT_AFTER_MS = 20
"""How long the dispatcher holds back an acceptance, so that it can go out with new work."""


class Dispatcher:
    """The actor; see the module's first lines."""

    name = "dispatcher"

    def __init__(
        self,
        store: Store,
        queues: DispatchedQueues,
        foreign_queues: ForeignQueues,
        *,
        slots: RunSlots,
        tickets: Tickets,
        log: Logger,
        predecessor: Predecessor | None = None,
        strikes: StrikeWatch | None = None,
        records: Records | None = None,
    ) -> None:
        self._queues = queues
        self._foreign_queues = foreign_queues
        self._slots = slots
        self._workers = Workers()
        self._times = RunTimes()
        self._lost = LostWorkers()
        self._records = records or Records(CrashReports(log))
        self._care = WorkerCare(self._workers, slots, queues, log)
        self._claiming = Claiming(store, queues, log)
        self._permits = PermitRequests(self._workers, self._times)
        self._hand_out = HandOut(self._workers, self._times, self._claiming.begin_probation)
        self._give_back = GiveBack(self._workers, self._hand_out, queues, log)
        self._early_starts = EarlyStarts(tickets, self._workers, self._lost, self._hand_out, store.quarantine)
        predecessor = Predecessor(has_been=False) if predecessor is None else predecessor
        self._adoption = Adoption(
            predecessor,
            store,
            queues,
            foreign_queues,
            workers=self._workers,
            hand_out=self._hand_out,
            early_starts=self._early_starts,
            slots=slots,
            suspend=self._claiming.suspend,
            cancel=lambda message: self._stop(Stop(message, is_kill=False)),
            log=log,
            note_stray_run=self._records.note_stray,
        )
        self._reconciliation = Reconciliation(
            store,
            workers=self._workers,
            lost=self._lost,
            hand_out=self._hand_out,
            early_starts=self._early_starts,
            settlement_of=self._adoption.stray_settlement,
            suspend=self._claiming.suspend,
            log=log,
            is_successor=predecessor.has_been,
        )
        self._strikes = strikes
        self._wake_ups = WakeUps(store)
        self._poll_at_ms = 0
        self._drain_until_ms: int | None = None
        self._to_stop: list[Post] = []
        """What to tell workers about deliveries that were cancelled, or that somebody else has."""
        self._choose_channels()
        self._settled = self._turned_at_ms = 0
        self.is_done = False

    # Mail

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Answer one mail."""
        match mail:
            case DeliveriesFinished():
                self._finish(mail, self._workers[sender], now_ms)
                return self._records.note_report(self._workers[sender], mail, now_ms)
            case DeliveriesReturned(queue, fences):
                self._take_back(self._workers[sender], queue, fences, now_ms)
            case DeliveriesListed():
                self._care.take_list(self._workers[sender], mail, now_ms)
            case WorkerReady():
                return self._welcome(mail, sender, now_ms)
            case PeerAttached(peer) if peer.startswith(WORKER):
                self._workers.join(peer).is_heard = not self._adoption.awaits(peer)
                self._early_starts.welcome(peer)
            case PeerLost(peer) if peer.startswith(WORKER):
                self._lose(peer, now_ms)
            case WorkerExited(worker, cause, rss_bytes):
                begun = self._slots.begun(slot_of(worker))
                self._lost.note_death(self._workers, worker, cause, begun, rss_bytes)
            case WorkerLeaving():
                self._workers.retire(sender)
            case RetireWorker(worker):
                self._workers.retire(worker)
            case KeepWorkers(are_kept):
                self._workers.keep(are_kept=are_kept)
            case Drain(grace_ms):
                self._drain_until_ms = now_ms + grace_ms
                self._choose_channels()
            case _:
                return self._records.hear(mail, now_ms)
        return ()

    # Time

    def turn(self, now_ms: int) -> Iterator[Post]:
        """One turn, phase by phase.

        The loop sends each mail as it comes: what is handed out is on its way before the rest is looked at.
        """
        self._turned_at_ms = now_ms
        self._hear(now_ms)
        yield from self._tell_strikes(now_ms)
        yield from self._hand_out_what_waits(now_ms)
        yield from self._settle_for_the_lost(now_ms)
        yield from self._adoption.turn(now_ms)
        self._settle_and_claim(now_ms)
        yield from self._hand_out_what_waits(now_ms)
        yield from self._hand_out.assign_alone(now_ms)
        yield from self._accept_reports(now_ms)
        yield from self._take_posts_to_stop()
        self._reconcile(now_ms)
        self._give_back.release_overdue(now_ms)
        yield from self._care.look_after(now_ms)
        yield from self._permits.mails(now_ms)
        yield from self._records.turn(self._workers, now_ms)
        if self._drain_until_ms is not None:
            yield from self._drain(now_ms)

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next poll, or sooner while workers have deliveries."""
        wait_ms = self._poll_at_ms - now_ms
        if self._early_starts.are_open:
            wait_ms = min(wait_ms, LOOK_AFTER_MS)
        wait_ms = self._hand_out.wait_ms(wait_ms, now_ms)
        unsettled = [queue for queue in self._queues if queue.has_unsettled]
        if unsettled:
            return max(0, min(wait_ms, *(queue.resume_at_ms - now_ms for queue in unsettled)))
        room, room_in_order = self._room(), self._room(in_order=True)
        if any(queue.wants(room, room_in_order, now_ms) for queue in self._queues):
            return 0  # it claimed fewer than there is room for, to see whether they find a worker
        is_in_flight = bool(self._lost) or any(worker.flights for worker in self._workers)
        if is_in_flight or self._hand_out.waiting_alone or self._drain_until_ms is not None:
            return min(wait_ms, LOOK_EVERY_MS)
        if not self._adoption.is_over or any(worker.accepted for worker in self._workers):
            return min(wait_ms, ACCEPT_AFTER_MS)
        if any(queue.is_limited for queue in self._queues):
            return min(wait_ms, self._permits.due_in_ms(now_ms))
        return wait_ms

    def watched(self) -> Iterable[Watched]:
        """The subscription to wake-ups, and the waker of the threads of foreign queues."""
        return (*self._wake_ups.watched(), *self._foreign_queues.watched())

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "settled": self._settled,
            "lost": len(self._lost),
            "waiting_alone": self._hand_out.waiting_alone,
            "gathering": self._hand_out.gathering,
            "in_flight": sum(len(worker.flights) for worker in self._workers),
            "workers": {worker.name: len(worker.flights) for worker in self._workers},
            "running": {worker.name: worker.long_running(self._turned_at_ms) for worker in self._workers},
            "queues": sorted(queue.name for queue in (*self._queues, *self._foreign_queues)),
            "models": self._foreign_queues.facts(),
            "is_store_up": not any(queue.resume_at_ms and queue.is_unreachable for queue in self._queues),
            "batch_size": self._times.batch_size(),
            "lost_leases": sum(queue.lost_leases for queue in self._queues),
            **self._care.facts(),
            **self._records.facts(),
        }

    # Hear

    def _hear(self, now_ms: int) -> None:
        """Wake-ups first; then whether workers that were named in one have begun."""
        for channel, text in self._wake_ups.heard(self._channels):
            if (stop := stop_in(text)) is not None:
                self._stop(stop)
            else:
                self._hear_wake_up(channel, text, now_ms)
        self._early_starts.close_overdue(now_ms)

    def _hear_wake_up(self, channel: str, text: bytes, now_ms: int) -> None:
        """An empty channel stands for all: the connection was lost, and with it what was said meanwhile."""
        if channel:
            queue = self._queue_by_channel.get(channel)
            if queue is not None:
                self._hear_of(queue, text, now_ms, is_handed_over=channel == queue.held_key)
            return
        for queue in self._queues:
            self._reconciliation.hurry(queue, now_ms)
            self._wake(queue, now_ms)

    def _hear_of(self, queue: DispatchedQueue, text: bytes, now_ms: int, *, is_handed_over: bool) -> None:
        if is_handed_over and text == ADDED:
            self._reconciliation.hurry(queue, now_ms)
        elif is_handed_over:
            if not self._early_starts.hear(queue, text, now_ms):
                self._reconciliation.look_soon(queue, now_ms)
        elif text == FIRST_LIMITED:
            self._permits.hurry(now_ms)
        elif not self._give_back.hear(queue, text):
            self._wake(queue, now_ms)

    def _wake(self, queue: DispatchedQueue, now_ms: int) -> None:
        if queue.is_limited:
            self._permits.hurry(now_ms)
        self._queues.wake(queue)

    def _choose_channels(self) -> None:
        """For each queue the wake-ups and, except in the end, what is handed over."""
        self._queue_by_channel = {queue.keys.meta: queue for queue in self._queues}
        if self._drain_until_ms is None:
            self._queue_by_channel |= {queue.held_key: queue for queue in self._queues}
        self._channels = frozenset(self._queue_by_channel)

    def _stop(self, stop: Stop) -> None:
        for queue, waiting in self._hand_out.take_message(stop.message):
            release_all(queue, [waiting])  # the queue knows that it was cancelled
        self._to_stop += posts_to_stop(stop, self._workers, self._slots)

    def _tell_strikes(self, now_ms: int) -> list[Post]:
        """Before anything is claimed or handed out: what is struck must not begin."""
        if self._strikes is None or not self._strikes.has_changed(now_ms):
            return []
        return self._strikes.told_to([worker.name for worker in self._workers])

    # Settle and claim

    def _settle_and_claim(self, now_ms: int) -> None:
        if now_ms >= self._poll_at_ms:
            self._poll_at_ms = now_ms + POLL_MS
            polled = self._queues.next_polled()
            for queue in polled:
                queue.may_have_messages = True
            self._give_back.look_for_parked(polled)
        self._workers.batch_ms = self._times.batch_ms(is_line_long=self._queues.is_any_line_long)
        self._hand_out.note_room_for_batches(self._queues, is_draining=self._drain_until_ms is not None)
        room = self._room()
        self._permits.note_room(self._queues, room)
        self._foreign_queues.turn(self._hand_out, room, self._idle(), self._queues, now_ms)
        self._to_stop += self._foreign_queues.abandoned(self._workers)
        room_now = Room(self._room(), self._room(in_order=True), self._idle())
        for queue, claimed, is_back in self._claiming.exchange(room_now, self._early_starts.tickets, now_ms):
            if is_back:
                self._reconciliation.hurry(queue, now_ms)
            self._hand_out.put(queue, claimed)

    def _room(self, *, in_order: bool = False) -> int:
        if self._drain_until_ms is not None:
            return 0
        batch_size = self._times.batch_size(batch_ms=self._workers.batch_ms)
        return max(0, self._workers.room(batch_size, in_order=in_order) - len(self._hand_out))

    def _idle(self) -> Idle:
        return Idle() if self._drain_until_ms is not None else self._workers.idle(len(self._hand_out))

    # Hand out

    def _hand_out_what_waits(self, now_ms: int) -> Sequence[Post]:
        self._hand_out.ripen(now_ms)
        # A worker that is given something must not make an early start on something else.
        if self._hand_out or self._hand_out.waiting_alone:
            self._early_starts.close_all()
        posts = self._hand_out.assign(now_ms)
        self._give_back.park_unknown()
        return posts

    def _accept_reports(self, now_ms: int) -> Iterator[Post]:
        for worker in self._workers:
            if worker.accepted and now_ms - worker.told_at_ms >= ACCEPT_AFTER_MS:
                yield Post(worker.name, ReportsAccepted(worker.take_accepted(now_ms)))

    def _take_posts_to_stop(self) -> list[Post]:
        posts, self._to_stop = self._to_stop, []
        return posts

    # What workers say

    def _finish(self, mail: DeliveriesFinished, worker: WorkerState, now_ms: int) -> None:
        self._early_starts.note_report(worker, mail.queue, mail.fences)
        worker.last_report_ms = now_ms
        self._times.note(mail.run_ms_by_task)
        queue = self._queues[mail.queue]
        queue.charge(sum(total_ms for _, total_ms in mail.run_ms_by_task.values()))
        queue.add_settlement(mail.arguments, Receipt(worker, mail.number))
        self._settled += len(mail.fences)
        if queue.is_limited:
            self._permits.hurry(now_ms)

    def _take_back(self, worker: WorkerState, queue: str, fences: Sequence[int], now_ms: int) -> None:
        flights = [(fence, worker.drop(queue, fence)) for fence in fences]
        returned = [
            Claimed(fence, flight.record, now_ms, flight.start_by_ms)
            for fence, flight in flights
            if flight is not None and flight.record  # without one it is not ours: it was stale
        ]
        self._hand_out.put_back(self._queues[queue], *returned)
        worker.last_report_ms = now_ms
        worker.is_slow = True

    def _welcome(self, mail: WorkerReady, sender: str, now_ms: int) -> Sequence[Post]:
        worker = self._workers[sender]
        worker.tasks, worker.threads, worker.concurrency = mail.tasks, mail.threads, mail.concurrency
        worker.last_report_ms, worker.pid = now_ms, mail.pid
        self._queues.learn(replace(mail, tasks={**self._workers.tasks(), **mail.tasks}))
        self._choose_channels()
        self._adoption.note_heard(sender)
        worker.is_heard = True
        # It may be the worker of a dispatcher before this one, and know strikes that are no more.
        strikes = [] if self._strikes is None else self._strikes.told_to([sender])
        if mail.held:
            self._adoption.welcome(worker, read_held(mail.held))
            return strikes
        self._workers.open(worker)
        self._give_back.look_for_parked(self._queues)
        return [*strikes, Post(sender, StandReady(self._early_starts.channels(sender, self._queues)))]

    # Look after workers

    def _reconcile(self, now_ms: int) -> None:
        if not self._adoption.is_anybody_awaited:  # who has not spoken yet may have what is unknown to us
            self._to_stop += self._reconciliation.turn(self._queues, now_ms)

    def _lose(self, worker: str, now_ms: int) -> None:
        # Now, with what its slot says: a new worker of this name may write there in a moment.
        begun = self._slots.begun(slot_of(worker))
        self._adoption.note_dead(worker, begun)
        state = self._workers.leave(worker)
        if state is not None:
            self._early_starts.close(state)
            self._lost.add(state, begun, now_ms)

    def _settle_for_the_lost(self, now_ms: int) -> list[Post]:
        for lost in self._lost.take_dead(self._workers, now_ms):
            try:
                self._reconciliation.learn_records(lost.worker, self._queues)
            except STORE_TROUBLE:
                self._lost.put_back(lost)
                continue
            self._settle_flights_of(lost, now_ms)
        # While a worker with a broken pipe lives, nobody else may have what it runs.
        unreachable = self._lost.take_unreachable(now_ms)
        return [
            *self._records.take_lost(),
            *(Post(SUPERVISOR, KillWorker(worker, PIPE_BROKE)) for worker in unreachable),
        ]

    def _settle_flights_of(self, lost: LostWorker, now_ms: int) -> None:
        is_draining = self._drain_until_ms is not None
        if is_draining:
            self._care.note_cut(lost.worker)
        settlements_by_queue = settlements_of(lost, is_draining=is_draining)
        self._records.note_lost(lost, settlements_by_queue, now_ms)
        for name, settlements in settlements_by_queue.items():
            self._queues[name].settle_for_the_lost(settlements)

    # Drain

    def _drain(self, now_ms: int) -> Iterator[Post]:
        has_no_early_start = self._early_starts.close_all()
        self._give_back.release_everything()
        holders = [worker.name for worker in self._workers if worker.flights or not worker.is_heard]
        in_flight = bool(self._lost) or not has_no_early_start or bool(holders)
        if not in_flight and not any(queue.has_unsettled for queue in self._queues):
            self.is_done = True
            self._care.tell_of_cut(())
            self._records.close(now_ms)
            for worker in self._workers:
                yield Post(worker.name, ReportsAccepted(worker.take_accepted(now_ms)))
                yield Post(worker.name, Drain(0))
        elif in_flight and self._drain_until_ms is not None and now_ms >= self._drain_until_ms:
            self._drain_until_ms = now_ms + EVIDENCE_WAIT_MS
            self._care.tell_of_cut((*self._workers, *self._lost.workers()))
            yield from (Post(SUPERVISOR, KillWorker(holder, "drain")) for holder in holders)


def main(control: Mailbox, start: ChildStart) -> int:
    """The dispatcher's process."""
    slots, tickets = RunSlots(start.slots_path), Tickets(start.slots_path)
    tickets.withdraw_all()  # before anything is heard that a worker could begin with one of them
    foreign_queues = foreign_queues_of(start)
    consumer, options = ConsumerName(start.consumer), queue_options(start.settings)
    store = open_store(start, quarantine_of(start))
    dispatcher = Dispatcher(
        store,
        DispatchedQueues(start.settings.queues, consumer, options, foreign_queues),
        foreign_queues,
        slots=slots,
        tickets=tickets,
        log=logger_of(start),
        predecessor=Predecessor(start.workers, slots.all_begun(), has_been=start.generation > 1),
        strikes=StrikeWatch(store, start.settings.namespace),
        records=records_of(start, store),
    )
    exit_code = run_dispatcher(dispatcher, control, start, store)
    foreign_queues.close()
    return exit_code
