"""Telemetry at the dispatcher: what workers reported goes on to the exporter, and the runs of dead workers.

The exporter is never waited for. It says what it has taken; what is more than it may have under way is
dropped and counted, and the count goes along with the next that it gets. While there is no exporter, because
it or this dispatcher was just started, what it is to have is kept.

A worker's report is accepted a moment later than it is stored: when the exporter has taken what came with it.
So whoever of worker and dispatcher is killed, one of the three still has it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.lost_workers import LostWorker
from mqworker.actors.dispatcher.workers import WorkerState
from mqworker.actors.mail import Mail, PeerAttached, PeerLost, RunsLost, TelemetryGathered, TelemetryTaken
from mqworker.actors.run_slot import Key, mark_of
from mqworker.model.delivery import Delivery
from mqworker.model.run_span import outcome_of
from mqworker.model.settlement import Settlement
from mqworker.model.telemetry import Entry

EXPORTER = "exporter"
MOST_UNDER_WAY = 20_000
"""Entries that the exporter was sent and has not taken."""
MOST_LOST_RUNS = 1_000
"""The most in one mail: each holds the record of its message."""
MOST_LOST_MAILS = 1_000


class Telemetry:
    """The dispatcher's side of the exporter. Pure but for the clock."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is the wall clock."""
        self._now_ms = now_ms
        self._is_attached = False
        self._under_way: deque[tuple[WorkerState, int, list[Entry]]] = deque()
        """Reports whose entries the exporter has not taken, in the order in which it gets them."""
        self._under_way_count = 0
        self._dropped = 0
        self._lost: list[Post] = []
        self.dropped = 0
        """How many entries the exporter never got."""

    def reported(self, worker: WorkerState, number: int, entries: list[Entry], now_ms: int) -> Sequence[Post]:
        """A worker's report of this number brought these; `now_ms` is the monotonic clock."""
        if not entries:
            return ()
        if self._under_way_count + len(entries) > MOST_UNDER_WAY:
            self._dropped += len(entries)
            self.dropped += len(entries)
            return ()
        self._under_way.append((worker, number, entries))
        self._under_way_count += len(entries)
        worker.untaken[number] = now_ms
        return (self._gathered(entries),) if self._is_attached else ()

    def hear(self, mail: Mail) -> Sequence[Post]:
        """The exporter took some; or a new one came, which gets what the one before had not taken."""
        match mail:
            case TelemetryTaken(count):
                self._note_taken(count)
            case PeerLost(peer) if peer == EXPORTER:
                self._is_attached = False
            case PeerAttached(peer) if peer == EXPORTER:
                self._is_attached = True
                return [self._gathered(entries) for _, _, entries in self._under_way]
            case _:
                pass
        return ()

    def close(self) -> None:
        """The workers end now, and this dispatcher with them: what is under way is in the exporter's pipe."""
        for worker, number, _ in self._under_way:
            worker.untaken.pop(number, None)

    def _note_taken(self, count: int) -> None:
        """Mail is answered in its order: so it is the oldest that was taken."""
        while count > 0 and self._under_way:
            worker, number, entries = self._under_way.popleft()
            worker.untaken.pop(number, None)
            self._under_way_count -= len(entries)
            count -= len(entries)

    def _gathered(self, entries: list[Entry]) -> Post:
        dropped, self._dropped = self._dropped, 0
        return Post(EXPORTER, TelemetryGathered(entries, dropped))

    def note_lost(
        self, lost: LostWorker, settlements_by_queue: Mapping[str, Sequence[Settlement]], now_ms: int
    ) -> None:
        """A worker died: what it had begun and did not report has ended, and nobody else can say so.

        `now_ms` is the monotonic clock, by which deliveries were handed out.
        """
        flights = lost.worker.flights
        in_order = lost.worker.threads == 1
        begun = set[Key]().union(
            *lost.begun.of((key, in_order and not flight.is_async) for key, flight in flights.items()),
            (key for key in flights if (mark_of(key[0]), key[1]) in lost.begun.log),
        )
        wall_ms = self._now_ms()
        runs = []
        for queue, settlements in settlements_by_queue.items():
            for settlement in settlements:
                fence = settlement.delivery.fence
                flight = flights.get((queue, fence))
                if flight is None or (queue, fence) not in begun:
                    continue
                since_ms = now_ms if flight.since_ms is None else flight.since_ms
                began_at_ms = lost.begun.log.get((mark_of(queue), fence)) or wall_ms - (now_ms - since_ms)
                runs.append(_run(queue, flight.record, settlement, began_at_ms))
        self._note(lost.worker.name, lost.cause, runs, wall_ms)

    def note_stray(
        self, queue: str, record: bytes, settlement: Settlement, cause: str, began_at_ms: int | None
    ) -> None:
        """A delivery ran in a worker that ended together with the dispatcher before this one.

        Of one that was killed before its first line nobody knows when it began.
        """
        wall_ms = self._now_ms()
        self._note("", cause, [_run(queue, record, settlement, began_at_ms or wall_ms)], wall_ms)

    def take_lost(self) -> list[Post]:
        """The mail about runs of dead workers, once there is somebody to read it."""
        if not self._is_attached:
            return []
        posts, self._lost = self._lost, []
        return posts

    def _note(self, worker: str, cause: str, runs: list[list[object]], wall_ms: int) -> None:
        for start in range(0, len(runs), MOST_LOST_RUNS):
            some = runs[start : start + MOST_LOST_RUNS]
            self._lost.append(Post(EXPORTER, RunsLost(worker, cause, some, wall_ms)))
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        """While there is no exporter: each mail holds at least one run."""
        for post in self._lost[:-MOST_LOST_MAILS]:
            if isinstance(post.mail, RunsLost):
                self.dropped += len(post.mail.runs)
                self._dropped += len(post.mail.runs)
        self._lost = self._lost[-MOST_LOST_MAILS:]


def _run(queue: str, record: bytes, settlement: Settlement, began_at_ms: int) -> list[object]:
    outcome, failure = outcome_of(settlement)
    is_readable = isinstance(settlement.delivery, Delivery)
    return [
        queue,
        settlement.delivery.fence,
        record if is_readable else b"",
        outcome,
        failure.error,
        began_at_ms,
    ]
