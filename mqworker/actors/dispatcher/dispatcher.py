"""Dispatcher: moves messages from ready to settled.

Owns:     the credit of each worker and the deliveries in flight.
Receives: WorkerReady, DeliveriesFinished, DeliveriesReturned, DeliveriesListed, WorkerLeaving (worker);
          WorkerExited, RetireWorker, KeepWorkers, Drain (supervisor).
Sends:    StandReady, RunDeliveries, ReportsAccepted, ListDeliveries, CancelDelivery, AbandonDelivery,
          DeliveryBuried, Drain (worker); PermitsWanted (rate limiter); KillWorker (supervisor).
Never:    decodes a body, runs user code, or blocks on a pipe.

One turn is one round trip per queue that has something to say: what workers finished is settled, and as much
is claimed as they have room for, together. Then the claimed deliveries are handed out.

Workers outlive their dispatcher. One that follows another adopts what they hold (dispatcher_adoption.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from mqworker.actors.actor import SUPERVISOR, Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.dispatcher.adoption import Predecessor, read_held
from mqworker.actors.dispatcher.cancelling import Stop, posts_to_stop, stop_in
from mqworker.actors.dispatcher.crash_reports import CrashReports
from mqworker.actors.dispatcher.early_starts import LOOK_AFTER_MS, Shortcuts
from mqworker.actors.dispatcher.foreign_queue import ModelLines, lines_of
from mqworker.actors.dispatcher.hand_out import Shelf
from mqworker.actors.dispatcher.lost_workers import (
    CANCELLED,
    EVIDENCE_WAIT_MS,
    PIPE_BROKE,
    LostWorker,
    LostWorkers,
    park,
    release,
    settlements_of_drained,
    settlements_of_lost,
)
from mqworker.actors.dispatcher.parked import Parking
from mqworker.actors.dispatcher.permits import ASK_EVERY_MS, PermitRequests
from mqworker.actors.dispatcher.queue import Claimed, DispatchedQueue, Receipt
from mqworker.actors.dispatcher.queues import DispatchedQueues
from mqworker.actors.dispatcher.reconciliation import StockTaking
from mqworker.actors.dispatcher.run_times import RunTimes
from mqworker.actors.dispatcher.succession import STORE_TROUBLE, Succession
from mqworker.actors.dispatcher.worker_care import LOOK_EVERY_MS, WORKER, WorkerCare, slot_of
from mqworker.actors.dispatcher.workers import Crew, Hand, Idle
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
from mqworker.actors.tickets import Tickets
from mqworker.actors.wake_ups import WakeUps
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options
from mqworker.errors import MqworkerError, StoreRefused
from mqworker.log import Logger
from mqworker.model.names import ConsumerName
from mqworker.store.exchange import Exchange
from mqworker.store.link.subscription import ADDED
from mqworker.store.store import Store

POLL_MS = 1_000
"""A lost wake-up costs this much, never a message."""
OUTAGE_PAUSE_MS = 200
MOST_STOCK = 100
"""Queues in which stock is taken in one turn."""
SHORTEST_PAUSE_MS = 1_000
LONGEST_PAUSE_MS = 30_000
"""What must run alone and finds no empty worker waits so long before it is claimed again."""
ACCEPT_AFTER_MS = 20
"""So long the dispatcher waits for work to send along when it has reports to accept."""


class Dispatcher:
    """The actor; see the module's first lines."""

    name = "dispatcher"

    def __init__(
        self,
        store: Store,
        queues: DispatchedQueues,
        lines: ModelLines,
        *,
        slots: RunSlots,
        tickets: Tickets,
        log: Logger,
        predecessor: Predecessor | None = None,
    ) -> None:
        self._store = store
        self._queues = queues
        self._lines = lines
        self._slots = slots
        self._log = log
        self._crew = Crew()
        self._care = WorkerCare(self._crew, slots, queues, log)
        self._lost = LostWorkers()
        self._crash_reports = CrashReports(log)
        self._times = RunTimes()
        self._shelf = Shelf(self._crew, self._times, self._begin_probation)
        self._parking = Parking(self._crew, self._shelf, log)
        self._shortcuts = Shortcuts(tickets, self._crew, self._lost, self._shelf, store.quarantine)
        predecessor = Predecessor(has_been=False) if predecessor is None else predecessor
        self._succession = Succession(
            predecessor,
            store,
            queues,
            lines,
            crew=self._crew,
            shelf=self._shelf,
            shortcuts=self._shortcuts,
            slots=slots,
            suspend=self._suspend,
            cancel=lambda message: self._stop(Stop(message, is_kill=False)),
            log=log,
        )
        self._stock = StockTaking(
            store,
            self._shortcuts,
            self._succession.verdict_on_stray,
            log,
            is_successor=predecessor.has_been,
        )
        self._wake_ups = WakeUps(store)
        self._poll_at_ms = 0
        self._permits = PermitRequests(self._crew, self._times)
        self._drain_until_ms: int | None = None
        self._cancelled: list[Post] = []
        self._choose_channels()
        self._settled = self._turned_at_ms = 0
        self.is_done = False

    # Mail

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Answer one mail."""
        match mail:
            case DeliveriesFinished():
                self._finish(mail, self._crew[sender], now_ms)
            case DeliveriesReturned(queue, fences):
                self._take_back(self._crew[sender], queue, fences, now_ms)
            case DeliveriesListed():
                self._care.take_list(self._crew[sender], mail, now_ms)
            case WorkerReady():
                return self._welcome(mail, sender, now_ms)
            case PeerAttached(peer) if peer.startswith(WORKER):
                self._crew.join(peer).is_heard = not self._succession.awaits(peer)
                self._shortcuts.welcome(peer)
            case PeerLost(peer) if peer.startswith(WORKER):
                self._lose(peer, now_ms)
            case WorkerExited(worker, cause):
                self._lost.note_death(self._crew, worker, cause, self._slots.begun(slot_of(worker)))
            case WorkerLeaving():
                self._crew.retire(sender)
            case RetireWorker(worker):
                self._crew.retire(worker)
            case KeepWorkers(are_kept):
                self._crew.keep(are_kept=are_kept)
            case Drain(grace_ms):
                self._begin_drain(now_ms + grace_ms)
            case _:
                pass
        return ()

    # Time

    def turn(self, now_ms: int) -> Iterator[Post]:
        """Settle, claim and hand out; then look after workers that died, overran or sit on work.

        What is handed out is on its way before the rest is looked at: the loop sends each mail as it comes.
        """
        self._turned_at_ms = now_ms
        self._hear_wake_ups(now_ms)
        self._shortcuts.close_overdue(now_ms)
        yield from self._hand_out(now_ms)
        yield from self._settle_for_the_lost(now_ms)
        if not self._succession.is_over:
            yield from self._succession.turn(now_ms)
        if now_ms >= self._poll_at_ms:
            self._poll_at_ms = now_ms + POLL_MS
            for queue in self._queues:
                queue.may_have_messages = True
            self._parking.look(self._queues)
        room = self._room()
        self._permits.note_room(self._queues, room)
        self._lines.turn(self._shelf, room, self._idle(), self._queues, now_ms)
        self._cancelled += self._lines.abandoned(self._crew)
        self._exchange_with_queues(now_ms)
        yield from self._hand_out(now_ms)
        yield from self._shelf.hand_out_alone(now_ms)
        yield from self._accept(now_ms)
        cancelled, self._cancelled = self._cancelled, []
        yield from cancelled
        self._take_stock(now_ms)
        self._give_back_what_waits(now_ms)
        yield from self._care.look_after(now_ms)
        yield from self._crash_reports.posts(self._crew)
        yield from self._permits.mails(now_ms)
        if self._drain_until_ms is not None:
            yield from self._drain(now_ms)

    def next_turn_in_ms(self, now_ms: int) -> int:
        """Until the next poll, or sooner while workers have something in their hands."""
        wait_ms = self._poll_at_ms - now_ms
        if self._shortcuts.are_open:
            wait_ms = min(wait_ms, LOOK_AFTER_MS)
        idle = self._idle()
        unsettled = [queue for queue in self._queues if queue.has_unsettled or queue.has_ackable(idle)]
        if unsettled:
            return max(0, min(wait_ms, *(queue.resume_at_ms - now_ms for queue in unsettled)))
        room, room_in_order = self._room(), self._room(in_order=True)
        if any(queue.wants(room, room_in_order, now_ms) for queue in self._queues):
            return 0  # it claimed fewer than there is room for, to see whether they find a worker
        is_busy = bool(self._lost) or self._shelf.waiting_alone or any(hand.flights for hand in self._crew)
        if is_busy or self._drain_until_ms is not None:
            return min(wait_ms, LOOK_EVERY_MS)
        if not self._succession.is_over or any(hand.accepted for hand in self._crew):
            return min(wait_ms, ACCEPT_AFTER_MS)
        if any(queue.is_limited for queue in self._queues):
            return min(wait_ms, ASK_EVERY_MS)
        return wait_ms

    def watched(self) -> Iterable[Watched]:
        """The subscription to wake-ups, and what the lines of other models ring with."""
        return (*self._wake_ups.watched(), *self._lines.watched())

    def facts(self) -> dict[str, Any]:
        """For the status screen."""
        return {
            "settled": self._settled,
            "lost": len(self._lost),
            "waiting_alone": self._shelf.waiting_alone,
            "in_flight": sum(len(hand.flights) for hand in self._crew),
            "workers": {hand.name: len(hand.flights) for hand in self._crew},
            "running": {hand.name: hand.long_running(self._turned_at_ms) for hand in self._crew},
            "queues": sorted(queue.name for queue in (*self._queues, *self._lines)),
            "models": self._lines.facts(),
            "is_store_up": not any(queue.resume_at_ms and queue.is_unreachable for queue in self._queues),
            "batch_size": self._times.batch_size(),
            **self._care.facts(),
        }

    # From claim to hand-out

    def _exchange_with_queues(self, now_ms: int) -> None:
        room, room_in_order, idle = self._room(), self._room(in_order=True), self._idle()
        healthy: list[tuple[DispatchedQueue, Exchange]] = []
        troubled: list[tuple[DispatchedQueue, Exchange]] = []
        for queue in sorted(self._queues, key=lambda each: each.worker_ms):
            if now_ms < queue.resume_at_ms:
                continue
            wanted = queue.wants(room, room_in_order, now_ms)
            exchange = queue.next_exchange(self._store, wanted, idle, self._shortcuts.tickets, now_ms)
            if exchange is not None:
                room, room_in_order = room - queue.asked_for, room_in_order - queue.asked_for
                (troubled if queue.resume_at_ms else healthy).append((queue, exchange))
        # Those in trouble apart, and one in a turn: a shard of a cluster that hangs must not hold back the
        # others for long, and in between pings are answered.
        for together in (healthy, troubled[:1]):
            outcomes = self._store.attempt_each([exchange for _, exchange in together])
            for (queue, _), outcome in zip(together, outcomes, strict=True):
                self._complete(queue, outcome, now_ms)

    def _complete(self, queue: DispatchedQueue, outcome: list[Any] | MqworkerError, now_ms: int) -> None:
        if isinstance(outcome, MqworkerError):  # whatever it is, it is the trouble of this queue alone
            self._suspend(queue, outcome, now_ms)
            return
        if queue.resume_at_ms:
            self._log.info("store_resumed", queue=queue.name)
            queue.resume_at_ms = 0
            self._stock.hurry(queue, now_ms)
        self._shelf.put(queue, queue.complete(outcome, now_ms))

    def _hand_out(self, now_ms: int) -> Sequence[Post]:
        # Whoever is to be given something must not begin something by itself.
        if self._shelf or self._shelf.waiting_alone:
            self._shortcuts.close_all()
        waits = [since_ms for each in self._queues if (since_ms := each.unacked_since_ms) is not None]
        posts = self._shelf.hand_out(now_ms, min(waits, default=None))
        self._parking.set_aside()
        return posts

    def _room(self, *, in_order: bool = False) -> int:
        if self._drain_until_ms is not None:
            return 0
        waiting = len(self._shelf) + sum(len(queue.unacked) for queue in self._queues)
        return max(0, self._crew.room(self._times.batch_size(), in_order=in_order) - waiting)

    def _idle(self) -> Idle:
        return Idle() if self._drain_until_ms is not None else self._crew.idle(len(self._shelf))

    def _suspend(self, queue: DispatchedQueue, error: MqworkerError, now_ms: int) -> None:
        queue.is_unreachable = not (isinstance(error, StoreRefused) and error.is_about_data)
        if not queue.is_unreachable:
            self._store.quarantine.note("queue", queue.name, error)
        elif not queue.resume_at_ms:
            self._log.warning("store_unavailable", queue=queue.name, reason=str(error))
        queue.resume_at_ms = now_ms + OUTAGE_PAUSE_MS

    def _take_stock(self, now_ms: int) -> None:
        if self._succession.is_anybody_awaited:
            return  # what is unknown to us may be in the hands of somebody who has not spoken yet
        due = [queue for queue in self._queues if self._stock.is_due(queue, now_ms)]
        for queue, held in self._stock.held(due[:MOST_STOCK], now_ms) if due else ():
            try:
                if isinstance(held, MqworkerError):
                    raise held
                known = self._shelf.fences_of(queue) | {each.fence for each in queue.unacked}
                hands = [*self._crew, *self._lost.hands()]
                self._cancelled += self._stock.compare(queue, held, known, hands, now_ms)
            except MqworkerError as error:
                self._suspend(queue, error, now_ms)

    def _give_back_what_waits(self, now_ms: int) -> None:
        """Learn from what found no worker, and let other nodes have it when it waits too long."""
        left = self._shelf.count_by_queue()
        for queue in self._queues:
            # One for each worker may wait for its ack: it begins when the worker is done with the one before.
            queue.note_left_over(left[queue.name] + max(0, len(queue.unacked) - len(self._crew)))
            self._release(queue, queue.take_overdue(now_ms - self._shelf.patience_ms))
        for queue, overdue in self._shelf.take_overdue(now_ms).items():
            if self._lines.get(queue.name) is None:
                # What may run once at most was acknowledged on its way here: it is in no line to go back to.
                acked = [each for each in overdue if queue.was_acked(each)]
                self._shelf.put_back(queue, *acked)
                self._release(queue, [each for each in overdue if each not in acked])
                queue.be_cautious(now_ms)
            else:  # to give these back would count as an attempt
                self._shelf.put_back(queue, *overdue)

        self._park_what_must_run_alone(now_ms)

    def _park_what_must_run_alone(self, now_ms: int) -> None:
        """What finds no empty worker here steps back behind the others, for as long as one has been taken."""
        pause_ms = min(LONGEST_PAUSE_MS, max(SHORTEST_PAUSE_MS, self._crew.lone_run_ms(now_ms)))
        for queue, overdue in self._shelf.take_overdue_alone(now_ms).items():
            queue.settle([park(each.fence, each.record, pause_ms) for each in overdue])

    def _begin_probation(self, queue: DispatchedQueue, fence: int, now_ms: int) -> bytes | None:
        try:
            return self._store.run(queue.begin_probation(fence))
        except STORE_TROUBLE as error:
            self._suspend(queue, error, now_ms)
            return None

    def _release(self, queue: DispatchedQueue, deliveries: Sequence[Claimed]) -> None:
        if deliveries:
            queue.settle([release(each.fence, each.record) for each in deliveries])

    def _finish(self, mail: DeliveriesFinished, hand: Hand, now_ms: int) -> None:
        self._shortcuts.note_report(hand, mail.queue, mail.fences)
        hand.last_report_ms = now_ms
        self._times.note(mail.run_ms_by_task)
        queue = self._queues[mail.queue]
        queue.charge(sum(total_ms for _, total_ms in mail.run_ms_by_task.values()))
        queue.add_settlement(mail.arguments, Receipt(hand, mail.number))
        self._settled += len(mail.fences)
        if queue.is_limited:
            self._permits.hurry(now_ms)

    def _take_back(self, hand: Hand, queue: str, fences: Sequence[int], now_ms: int) -> None:
        flights = [(fence, hand.drop(queue, fence)) for fence in fences]
        returned = [
            Claimed(fence, flight.record, now_ms, flight.start_by_ms)
            for fence, flight in flights
            if flight is not None and flight.record  # without one it is not ours: it was stale
        ]
        self._shelf.put_back(self._queues[queue], *returned)
        hand.last_report_ms = now_ms
        hand.is_slow = True

    # Workers

    def _welcome(self, mail: WorkerReady, sender: str, now_ms: int) -> Sequence[Post]:
        hand = self._crew[sender]
        hand.tasks, hand.threads, hand.concurrency = mail.tasks, mail.threads, mail.concurrency
        hand.last_report_ms = now_ms
        self._queues.learn(replace(mail, tasks={**self._crew.tasks(), **mail.tasks}))
        self._choose_channels()
        self._succession.note_heard(sender)
        hand.is_heard = True
        if mail.held:
            return self._succession.welcome(hand, read_held(mail.held))
        self._crew.open(hand)
        self._parking.look(self._queues)
        return [Post(sender, StandReady(self._shortcuts.channels(sender, self._queues)))]

    def _accept(self, now_ms: int) -> Iterator[Post]:
        for hand in self._crew:
            if hand.accepted and now_ms - hand.told_at_ms >= ACCEPT_AFTER_MS:
                yield Post(hand.name, ReportsAccepted(hand.take_accepted(now_ms)))

    def _lose(self, worker: str, now_ms: int) -> None:
        self._succession.note_heard(worker)
        # Aside at once, with what its slot says: a new worker of this name may write there in a moment.
        hand = self._crew.leave(worker)
        if hand is not None:
            self._shortcuts.close(hand)
            self._lost.add(hand, self._slots.begun(slot_of(worker)), now_ms)

    def _settle_for_the_lost(self, now_ms: int) -> list[Post]:
        for lost in self._lost.take_dead(self._crew, now_ms):
            try:
                self._stock.learn_records(lost.hand, self._queues)
            except STORE_TROUBLE:
                self._lost.put_back(lost)
                continue
            self._settle_flights_of(lost)
        # Nobody else may have what a worker with a broken pipe runs, before it is dead.
        deaf = self._lost.take_deaf(now_ms)
        return [Post(SUPERVISOR, KillWorker(worker, PIPE_BROKE)) for worker in deaf]

    def _settle_flights_of(self, lost: LostWorker) -> None:
        hand, cause = lost.hand, lost.hand.cause or "unknown"
        if self._drain_until_ms is not None or cause.startswith(CANCELLED):
            settlements_by_queue = settlements_of_drained(hand)
        else:
            settlements_by_queue = settlements_of_lost(hand, lost.begun, cause)
        self._crash_reports.note(settlements_by_queue, hand, cause)
        for name, settlements in settlements_by_queue.items():
            self._queues[name].settle_for_the_lost(settlements)
        if hand.flights:
            self._log.warning("worker_lost", worker=hand.name, cause=cause, deliveries=len(hand.flights))

    # Wake-ups

    def _hear_wake_ups(self, now_ms: int) -> None:
        for channel, text in self._wake_ups.heard(self._channels):
            if (stop := stop_in(text)) is not None:
                self._stop(stop)
                continue
            for queue in self._queues:
                if channel == queue.keys.meta and self._parking.hear(queue, text):
                    continue
                if channel == queue.held_key and text != ADDED:
                    self._shortcuts.hear(queue, text, now_ms)
                elif channel in (queue.held_key, ""):
                    self._stock.hurry(queue, now_ms)
                if channel in (queue.keys.meta, "") and not queue.may_have_messages:
                    queue.wake(min(each.worker_ms for each in self._queues))

    def _choose_channels(self) -> None:
        """Of each queue the wake-ups and, unless this is the end, what is handed over."""
        channels = {queue.keys.meta for queue in self._queues}
        if self._drain_until_ms is None:
            channels |= {queue.held_key for queue in self._queues}
        self._channels = frozenset(channels)

    def _stop(self, stop: Stop) -> None:
        for queue, unbegun in self._shelf.take_message(stop.message):
            self._release(queue, [unbegun])  # the queue knows that it was cancelled
        self._cancelled += posts_to_stop(stop, self._crew, self._slots)

    # The end

    def _begin_drain(self, until_ms: int) -> None:
        self._drain_until_ms = until_ms
        self._choose_channels()

    def _drain(self, now_ms: int) -> list[Post]:
        is_clear = self._shortcuts.close_all()
        for queue in self._queues:
            self._shelf.put(queue, queue.unacked)
            queue.unacked.clear()
        for queue, deliveries in self._shelf.take_all().items():
            self._release(queue, deliveries)
        in_flight = bool(self._lost) or not is_clear or any(map(_may_hold, self._crew))
        if not in_flight and not any(queue.has_unsettled for queue in self._queues):
            self.is_done = True
            return [
                post
                for hand in self._crew
                for post in (
                    Post(hand.name, ReportsAccepted(hand.take_accepted(now_ms))),
                    Post(hand.name, Drain(0)),
                )
            ]
        if in_flight and self._drain_until_ms is not None and now_ms >= self._drain_until_ms:
            self._drain_until_ms = now_ms + EVIDENCE_WAIT_MS
            overdue = [hand.name for hand in self._crew if _may_hold(hand)]
            return [Post(SUPERVISOR, KillWorker(worker, "drain")) for worker in overdue]
        return []


def _may_hold(hand: Hand) -> bool:
    return bool(hand.flights) or not hand.is_heard


def main(control: Mailbox, start: ChildStart) -> int:
    """The dispatcher's process."""
    slots, tickets = RunSlots(start.slots_path), Tickets(start.slots_path)
    tickets.withdraw_all()  # before anything is heard that a worker could begin with one of them
    lines, consumer, options = lines_of(start), ConsumerName(start.consumer), queue_options(start.settings)
    quarantine = quarantine_of(start)
    dispatcher = Dispatcher(
        open_store(start, quarantine),
        DispatchedQueues(start.settings.queues, consumer, options, lines),
        lines,
        slots=slots,
        tickets=tickets,
        log=logger_of(start),
        predecessor=Predecessor(start.workers, slots.all_begun(), has_been=start.generation > 1),
    )
    exit_code = run_dispatcher(dispatcher, control, start, quarantine)
    lines.close()
    return exit_code
