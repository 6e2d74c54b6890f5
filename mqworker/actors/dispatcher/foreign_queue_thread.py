"""The thread of a foreign queue: serves one queue of another model than the work queue.

Such a queue may live in a slow database: only its thread waits for it. The thread owns the queue and the
deliveries held; it settles, renews and claims, in this order, round after round, and what one round could not
write is written by a later one. When the process dies, the workers tell its successor what they hold: that is
adopted, and the rest comes back when all of them have spoken, or by the rules of the model.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mqworker.actors.dispatcher.queue import Receipt
from mqworker.errors import MqworkerError
from mqworker.log import Logger
from mqworker.model.clock import Clock
from mqworker.model.delivery import Delivery
from mqworker.model.instant import After, Instant
from mqworker.model.record import encode_delivery
from mqworker.model.settlement import Park, Release, RetryAt, Settlement
from mqworker.model.settlement_parts import Parts, settlement_of
from mqworker.queues.catalogue import Model, OpenQueue, close_queue
from mqworker.store.outage import OUTAGE_ROUND_MS

LARGEST_CLAIM = 500
NO_PAUSE_MS = 0
CLOSE_S = 2.0
_LONGEST_TROUBLE = 300
COUNT_EVERY_MS = 2_000
COUNT_AT_LEAST_EVERY_MS = 5_000
_COUNTING_SHARE = 20  # counting a long table takes long: a twentieth of the time, unless counts get too old


@dataclass(order=True, slots=True)
class _Postponed:
    """A settlement of a model that knows no delay: what it settles is held until then."""

    due_ms: int
    fence: int
    settlement: Settlement = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Report:
    """What to settle, and whom to tell when it is stored."""

    settlements: Sequence[Parts]
    receipt: Receipt | None


@dataclass(frozen=True, slots=True)
class _Adopted:
    """What workers hold from the dispatcher before this one."""

    delivery_by_fence: Mapping[int, Delivery]


class ForeignQueueThread:
    """Asked and told by the dispatcher's main thread; everything else happens in its own."""

    def __init__(
        self,
        model: Model,
        open_queue: Callable[[], OpenQueue],
        *,
        wake_dispatcher: Callable[[], None],
        max_crashes: int | None,
        clock: Clock,
        log: Logger,
    ) -> None:
        self.trouble = ""
        """What went wrong of late, in words; empty while all is well."""
        self.counts: Mapping[str, int] = {}
        """How many messages the queue holds, by the words of its model; some seconds old."""
        self._counted_at_ms: int | None = None
        self._model = model
        self._open = open_queue
        self._wake_dispatcher = wake_dispatcher
        self._max_crashes = max_crashes
        self._clock = clock
        self._log = log
        self._queue: OpenQueue | None = None
        self._claimed: deque[tuple[int, bytes]] = deque()
        self._lost: deque[int] = deque()
        self._reports: deque[_Report | _Adopted] = deque()
        self._stored: deque[Receipt] = deque()
        self._wanted = 0
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._is_closing = False
        self._is_adoption_over = False
        self._crash: BaseException | None = None
        # Only the thread touches these:
        self._held: dict[int, Delivery] = {}
        self._unadopted: dict[int, Delivery] = {}
        """Held by workers and not yet by us: it is adopted before anything of it is settled or renewed."""
        self._has_begun_adoption, self._is_adopting = False, True
        self._unsettled: dict[int, Settlement] = {}
        self._postponed: list[_Postponed] = []
        self._receipts: list[tuple[Receipt, set[int]]] = []
        """With the fences that are yet to be settled."""
        self._poll_at_ms = self._renew_at_ms = self._count_at_ms = self._resume_at_ms = 0
        self._thread = threading.Thread(target=self._work, name="foreign-queue", daemon=True)

    # For the main thread

    def start(self) -> None:
        """Start serving the queue."""
        self._thread.start()

    def want(self, count: int) -> None:
        """Note how many could be handed out soon."""
        with self._lock:
            is_news = count > 0 and self._wanted == 0
            self._wanted = count
        if is_news:
            self._news.set()

    def take_claimed(self) -> list[tuple[int, bytes]]:
        """Fences and records of what was claimed since the last time; raises what ended the thread."""
        if self._crash is not None:
            raise self._crash
        return [self._claimed.popleft() for _ in range(len(self._claimed))]

    def take_lost(self) -> list[int]:
        """Fences of leases that were lost since the last time."""
        return [self._lost.popleft() for _ in range(len(self._lost))]

    @property
    def counts_age_ms(self) -> int | None:
        """How old `counts` is; None before the first."""
        return None if self._counted_at_ms is None else self._clock.monotonic_ms() - self._counted_at_ms

    @property
    def held(self) -> int:
        """How many deliveries are held."""
        return len(self._held)

    def report(self, settlements: Sequence[Parts], receipt: Receipt | None = None) -> None:
        """Settle these; they are tried again until the queue has answered."""
        self._reports.append(_Report(settlements, receipt))
        self._news.set()

    def adopt(self, delivery_by_fence: Mapping[int, Delivery]) -> None:
        """Renew and settle these as if they had been claimed here."""
        self._reports.append(_Adopted(delivery_by_fence))
        self._news.set()

    def end_adoption(self) -> None:
        """All workers have said what they hold: any node may take the rest."""
        if not self._is_adoption_over:
            self._is_adoption_over = True
            self._news.set()

    def take_stored(self) -> list[Receipt]:
        """The reports that were settled since the last time."""
        return [self._stored.popleft() for _ in range(len(self._stored))]

    def close(self) -> None:
        """Settle what is left, give back what nobody saw yet, and leave; all that in a moment, or not."""
        self._is_closing = True
        self._news.set()
        self._thread.join(CLOSE_S)

    # The thread

    def _work(self) -> None:
        try:
            while not self._is_closing:
                self._round()
                self._news.wait(self._pause_ms() / 1000)
                self._news.clear()
            self._finish()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread, which reports it
            self._crash = error
            self._wake_dispatcher()

    def _round(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._resume_at_ms:
            return
        try:
            if self._queue is None:
                self._queue = self._open()
            self._adopt(self._queue, now_ms)
            self._settle(self._queue, now_ms)
            self._renew(self._queue, now_ms)
            self._claim(self._queue, now_ms)
            self._count(self._queue, now_ms)
        # Broad: whatever this queue holds or its database says is the trouble of this queue, and neither that
        # of the dispatcher nor of its other queues.
        except Exception as error:  # noqa: BLE001 - see above
            self._note_trouble(error, now_ms)
        else:
            self._note_health()

    def _adopt(self, queue: OpenQueue, now_ms: int) -> None:
        """Read what is reported, and first take over what workers hold from the process before us."""
        is_over = self._is_adoption_over  # asked before the last of it is read
        self._read_reports(now_ms)
        if not self._has_begun_adoption:
            queue.begin_adoption()
            self._has_begun_adoption = True
        if self._unadopted:
            for lost in queue.adopt(*self._unadopted.values()):
                self._note_lost(lost.fence)
            self._unadopted.clear()
        if is_over and self._is_adopting:
            queue.end_adoption()
            self._is_adopting = False

    def _settle(self, queue: OpenQueue, now_ms: int) -> None:
        while self._postponed and (self._postponed[0].due_ms <= now_ms or self._is_closing):
            postponed = heapq.heappop(self._postponed)
            self._unsettled[postponed.fence] = postponed.settlement
        if not self._unsettled:
            self._note_stored()
            return
        batch = list(self._unsettled.items())[:LARGEST_CLAIM]
        lost = queue.settle(*(settlement for _, settlement in batch))
        for each in lost:
            # Somebody else has it, or has settled it; or an earlier try was carried out and not answered.
            self._log.warning(
                "delivery_lost", task_id=getattr(each.delivery, "id", ""), settlement=_kind(each)
            )
        for fence, _ in batch:
            del self._unsettled[fence]
            self._held.pop(fence, None)
        self._note_stored()
        if self._unsettled:
            self._news.set()

    def _read_reports(self, now_ms: int) -> None:
        while self._reports:
            match self._reports.popleft():
                case _Adopted(delivery_by_fence):
                    self._held.update(delivery_by_fence)
                    self._unadopted.update(delivery_by_fence)
                case _Report(settlements, receipt):
                    for parts in settlements:
                        settlement = settlement_of(parts, self._held)
                        if settlement is not None:
                            self._note(parts[1], settlement, now_ms)
                    if receipt is not None:
                        self._receipts.append((receipt, {parts[1] for parts in settlements}))

    def _note_stored(self) -> None:
        """Accept reports of which nothing is to be written any more; what is to come later is held here."""
        stored = [receipt for receipt, fences in self._receipts if fences.isdisjoint(self._unsettled)]
        if stored:
            self._receipts = [each for each in self._receipts if each[0] not in stored]
            self._stored.extend(stored)
            self._wake_dispatcher()

    def _note(self, fence: int, settlement: Settlement, now_ms: int) -> None:
        if isinstance(settlement, RetryAt | Park) and "delay" not in self._model.wishes:
            due_ms = now_ms + self._ms_until(settlement.due)
            heapq.heappush(self._postponed, _Postponed(due_ms, fence, settlement))
        else:
            self._unsettled[fence] = settlement

    def _ms_until(self, due: Instant) -> int:
        return due.ms if isinstance(due, After) else max(0, due.epoch_ms - self._clock.now_ms())

    def _renew(self, queue: OpenQueue, now_ms: int) -> None:
        if now_ms < self._renew_at_ms:
            return
        for lost in queue.extend(*self._held.values(), lease_ms=self._model.lease_ms):
            self._note_lost(lost.fence)
        if not self._is_adopting:
            queue.reclaim()
        self._renew_at_ms = now_ms + self._model.renew_every_ms

    def _note_lost(self, fence: int) -> None:
        """Its run goes on here, and another node may run it too; our outcome will be refused."""
        self._log.warning("lease_lost", task_id=self._held.pop(fence).id)
        self._unsettled.pop(fence, None)
        self._lost.append(fence)
        self._wake_dispatcher()

    def _claim(self, queue: OpenQueue, now_ms: int) -> None:
        with self._lock:
            count = min(self._wanted, LARGEST_CLAIM)
        if count <= 0 or now_ms < self._poll_at_ms or self._is_closing:
            return
        deliveries = queue.claim(count, lease_ms=self._model.lease_ms)
        # Fewer than there was room for: the queue is empty, as a rule.
        self._poll_at_ms = now_ms + (
            round(self._model.poll * 1000) if len(deliveries) < count else NO_PAUSE_MS
        )
        if not deliveries:
            return
        for delivery in deliveries:
            self._held[delivery.fence] = delivery
            ours = replace(delivery, max_crashes=self._max_crashes)
            self._claimed.append((delivery.fence, encode_delivery(ours)))
        with self._lock:
            self._wanted = max(0, self._wanted - len(deliveries))
        self._wake_dispatcher()

    def _count(self, queue: OpenQueue, now_ms: int) -> None:
        if now_ms < self._count_at_ms or self._is_closing:
            return
        began_ms = self._clock.monotonic_ms()
        self.counts = queue.counts()
        self._counted_at_ms = counted_at_ms = self._clock.monotonic_ms()
        pause_ms = max(COUNT_EVERY_MS, (counted_at_ms - began_ms) * _COUNTING_SHARE)
        self._count_at_ms = counted_at_ms + min(COUNT_AT_LEAST_EVERY_MS, pause_ms)

    def _finish(self) -> None:
        """Nobody waits long for this: what is not settled now comes back by the rules of the model."""
        if self._queue is None:
            return
        try:
            self._adopt(self._queue, self._clock.monotonic_ms())
            self._settle(self._queue, self._clock.monotonic_ms())
            while self._unsettled:
                self._settle(self._queue, self._clock.monotonic_ms())
            self._give_back_unseen(self._queue)
            # A consumer that holds something, which perhaps still runs, does not leave: who would reclaim it?
            if not self._held:
                close_queue(self._queue)
        except Exception as error:  # noqa: BLE001 - as above
            self._log.warning("queue_not_left", reason=str(error), held=len(self._held))

    def _give_back_unseen(self, queue: OpenQueue) -> None:
        unseen = [fence for fence, _ in self._claimed if fence in self._held]
        if unseen:
            queue.settle(*(Release(self._held.pop(fence)) for fence in unseen))

    def _pause_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._resume_at_ms:
            return self._resume_at_ms - now_ms
        instants = [self._renew_at_ms, self._count_at_ms, *(each.due_ms for each in self._postponed[:1])]
        if self._wanted > 0:
            instants.append(self._poll_at_ms)
        return max(0, min(instants) - now_ms)

    def _note_trouble(self, error: Exception, now_ms: int) -> None:
        reason = str(error) if isinstance(error, MqworkerError) else f"{type(error).__name__}: {error}"
        if not self.trouble:
            self._log.warning("store_unavailable", reason=reason)
        self.trouble = reason[:_LONGEST_TROUBLE]
        self._resume_at_ms = now_ms + OUTAGE_ROUND_MS

    def _note_health(self) -> None:
        if self.trouble:
            self.trouble = ""
            self._log.info("store_resumed")


def _kind(settlement: Settlement) -> str:
    return "retry" if isinstance(settlement, RetryAt) else type(settlement).__name__.lower()
