"""The consumer of gq: registers, shows that it lives, takes batches and runs the callback on each message."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from uuid import UUID, uuid4

from mqworker.errors import InvalidArgument, StoreUnavailable
from mqworker.model.names import whole_number
from mqworker.queues.gq.database import GqNotRegistered, GqStore
from mqworker.queues.gq.rules import (
    LARGEST_BATCH,
    GqClaim,
    GqHeld,
    GqLiveness,
    GqMessage,
    GqResult,
    GqTerms,
    GqView,
)

Process = Callable[[bytes], object]
"""The callback: gets the payload; raising anything is an error, everything else is success."""

IDLE_S = 0.05
_FAMILY_LENGTH = len("00000000-0000-0000")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """The results of a batch, as ids."""

    processed: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    """Results that came too late: somebody else has or had the message, and nothing was changed."""


class GqConsumer:
    """One consumer. `run` is for one thread; `heartbeat` and `stop` may be called from any."""

    def __init__(
        self,
        store: GqStore,
        process: Process | None,
        pop_batch: int,
        liveness: GqLiveness,
        terms: GqTerms,
        *,
        node: str | None = None,
    ) -> None:
        """`node` is shared by consumers that may take over what the others held."""
        self._store = store
        self._node = node
        self._process = process
        self._pop_batch = whole_number("pop_batch", pop_batch, least=1, most=LARGEST_BATCH)
        self._liveness = liveness
        self._terms = terms
        self._uuid: str | None = None
        self._joining: str | None = None  # a registration whose answer was lost
        self._unanswered: GqClaim | None = None  # a claim whose answer was lost
        self._claims = 0
        self._beats = 0
        self._results: list[GqResult] = []  # not written yet
        self._lock = threading.RLock()  # registration; never held while the callback runs
        self._at_work = threading.Lock()  # held as long as a batch is in work
        self._working_thread: int | None = None
        self._stopping = threading.Event()

    @property
    def uuid(self) -> str | None:
        """Under which name it is registered; a new one after each registration."""
        return self._uuid

    def register(self) -> str:
        """Join at the end of the order of birth, under a new uuid; its earlier record expires."""
        with self._lock:
            # Under the same name again if the answer was lost: a second record would starve a partition.
            self._joining = self._joining or _new_name(self._node)
            self._store.register(self._joining)
            self._uuid, self._joining = self._joining, None
            return self._uuid

    def heartbeat(self) -> bool:
        """Show life; after every H of them delete the dead, and register again if this one was given up.

        Whether it is registered afterwards.
        """
        with self._lock:
            if self._uuid is None:
                self.register()
            is_alive = self._store.beat(self._registered(), self._liveness)
            self._beats += 1
            if self._beats % self._liveness.check_every:
                return is_alive
            self._store.prune(self._liveness, self._terms)
            if not is_alive:
                self.register()
            return True

    def view(self) -> GqView:
        """Its index and how many are active, by now; raises `GqNotRegistered`."""
        return self._store.view(self._registered(), self._liveness)

    def pop(self, count: int | None = None) -> list[GqMessage]:
        """The oldest messages of its partition, now consumed by it; registers (again) first, if need be.

        After a pop whose answer was lost, these are the messages of that pop, however many are asked for.
        """
        count = (
            self._pop_batch if count is None else whole_number("count", count, least=1, most=LARGEST_BATCH)
        )
        with self._lock:
            if self._uuid is None:
                self.register()
            try:
                return self._pop(count)
            except GqNotRegistered:
                refused, self._unanswered = self._unanswered, None
                if refused is None or refused.consumer == self._uuid:
                    self.register()
                return self._pop(count)

    def select(self, view: GqView | None = None) -> list[int]:
        """First step of two: the ids it would claim under a view, which may be out of date by now."""
        return self._store.select(view or self.view(), self._pop_batch, self._terms)

    def claim(self, ids: Sequence[int]) -> list[GqMessage]:
        """Second step: those of the selected that nobody else took; raises `GqNotRegistered`."""
        for id_ in ids:
            whole_number("id", id_, least=1, most=2**53)
        if not ids:
            return []
        if len(ids) > LARGEST_BATCH:
            raise InvalidArgument(f"ids are {len(ids):,}; accepted are up to {LARGEST_BATCH:,}")
        with self._lock:
            return self._store.claim(self._next_claim(), ids, self._liveness, self._terms)

    def predecessors(self) -> list[str]:
        """The other consumers of its node that are registered: their processes have ended."""
        family = family_of(self._node or "")
        names = [each.uuid for each in self._store.consumers()]
        return [name for name in names if name.startswith(family) and name != self._uuid]

    def adopt(self, held: Sequence[GqHeld]) -> tuple[GqClaim, list[int]]:
        """Take over what workers hold from its predecessors: under which claim, and which messages."""
        family = family_of(self._node or "")
        with self._lock:
            if self._uuid is None:
                self.register()
            claim = self._next_claim()
            try:
                return claim, self._store.adopt(claim, family, held, self._liveness)
            except GqNotRegistered:
                self.register()
                claim = self._next_claim()
                return claim, self._store.adopt(claim, family, held, self._liveness)

    def beat_for(self, others: Sequence[str]) -> None:
        """Send a heartbeat for itself and for others, and give nobody up."""
        with self._lock:
            if self._uuid is None or not self._store.beat(self._uuid, self._liveness):
                self.register()
            for other in others:
                self._store.beat(other, self._liveness)

    def settle(self, results: Sequence[GqResult]) -> list[int]:
        """Write results of messages that were popped or claimed; the ids of those that were lost."""
        return self._store.settle(results, self._terms) if results else []

    def run_once(self) -> BatchReport:
        """Pop a batch, run the callback on each message, write the results.

        Results that could not be written (`StoreUnavailable`) are kept and written by the next call.
        """
        with self._at_work:
            self._working_thread = threading.get_ident()
            try:
                return self._work_on_a_batch()
            finally:
                self._working_thread = None
                if self._stopping.is_set():
                    self._leave()

    def run(self) -> None:
        """Work until `stop`, with heartbeats from a thread beside; outages of the store are waited out."""
        beating = threading.Thread(target=self._beat_until_stopped, daemon=True)
        beating.start()
        try:
            while not self._stopping.is_set():
                if self._found_nothing():
                    self._stopping.wait(IDLE_S)
        finally:
            self._stopping.set()
            beating.join()
            with suppress(StoreUnavailable):  # then the record dies by itself, of silence
                self._leave()

    def stop(self) -> None:
        """Wait until the batch in work is finished, delete the own record. In a callback: after the batch."""
        self._stopping.set()
        if self._working_thread == threading.get_ident():
            return
        with self._at_work:
            self._leave()

    def _pop(self, count: int) -> list[GqMessage]:
        claim = self._unanswered or self._next_claim()
        self._unanswered = replace(claim, is_repeated=True)
        messages = self._store.pop(claim, count, self._liveness, self._terms)
        self._unanswered = None
        return messages

    def _next_claim(self) -> GqClaim:
        self._claims += 1
        return GqClaim(self._registered(), self._claims)

    def _registered(self) -> str:
        if self._uuid is None:
            raise GqNotRegistered("the consumer is not registered yet, or left")
        return self._uuid

    def _work_on_a_batch(self) -> BatchReport:
        if self._process is None:
            raise InvalidArgument("process is None; accepted is a callback, given with the consumer")
        lost = self._write_results()
        done: list[GqResult] = []
        try:
            # Grows result by result, so that an interrupt leaves those before it.
            done.extend(GqResult(message, is_ok=_succeeds(self._process, message)) for message in self.pop())
        finally:  # also when the process is interrupted: what is done is done
            self._results = done
            lost += self._write_results()
        kept = [result for result in done if result.message.id not in lost]
        return BatchReport(
            tuple(result.message.id for result in kept if result.is_ok),
            tuple(result.message.id for result in kept if not result.is_ok),
            tuple(lost),
        )

    def _write_results(self) -> list[int]:
        lost = self.settle(self._results)
        self._results = []
        return lost

    def _found_nothing(self) -> bool:
        try:
            return self.run_once() == BatchReport()
        except StoreUnavailable:
            return True

    def _beat_until_stopped(self) -> None:
        while not self._stopping.wait(self._liveness.interval_ms / 1000):
            with suppress(StoreUnavailable):  # the next beat may come through; if none does, it dies
                self.heartbeat()

    def _leave(self) -> None:
        with self._lock:
            for uuid in (self._joining, self._uuid):
                if uuid is not None:
                    self._store.leave(uuid)
            self._uuid = self._joining = None


def family_of(node: str) -> str:
    """How the names of all consumers of a node begin."""
    return str(UUID(sha256(node.encode()).hexdigest()[:32]))[:_FAMILY_LENGTH]


def _new_name(node: str | None) -> str:
    name = str(uuid4())
    return name if node is None else family_of(node) + name[_FAMILY_LENGTH:]


def _succeeds(process: Process, message: GqMessage) -> bool:
    try:
        process(message.payload)
    except Exception:  # noqa: BLE001 - foreign code; whatever it raises means that the message was not processed
        return False
    return True
