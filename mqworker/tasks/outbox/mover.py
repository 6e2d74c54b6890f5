"""Mover: takes committed rows of an outbox into the work queues of Redis, each once.

Redis keeps for each queue up to which position its rows are moved: the newest call of a lane that has the
outbox's name (parts/calls.lua). A batch goes in by a call that says "I follow position n and end at m", in
the same script as its messages. So any number of movers may work at once, be stopped and wake up later, or
repeat what was done: only the one batch that follows is taken. Rows stay for a while after that: a Redis that
comes back without its newest writes stands at an earlier position, and the rows behind it go in again.

No state of a mover counts: each pass asks Redis where its queues are. Decision 44 has the reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from mqworker.errors import InvalidMessage, MqworkerError, QueueFull, StaleCall, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.message import Message
from mqworker.model.names import QueueName, parse_whole
from mqworker.model.outbox_row import aged, decode_row
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.keys import queues_key
from mqworker.queues.work.steps import LARGEST_BATCH, LARGEST_BATCH_BYTES
from mqworker.store.exchange import Entry
from mqworker.store.store import Store
from mqworker.tasks.outbox.rows import OutboxRows, Row, Waiting

LOOK_AROUND_MS = 5_000
"""How often all queues with rows are compared with Redis, which may have lost its newest writes."""
BATCHES_AT_ONCE = 10
"""How many batches of one queue in a pass: then the others have their turn."""
FIRST_PAUSE_MS = 250
LONGEST_PAUSE_MS = 10_000


@dataclass(slots=True)
class QueueProgress:
    """What is remembered of a queue; all of it may be forgotten."""

    batch: int = LARGEST_BATCH
    """A queue with a limit takes smaller ones."""
    trouble: str = ""
    pause_ms: int = 0
    again_at_ms: int = 0
    seen: deque[tuple[int, int]] = field(default_factory=deque)
    """(since when ms, position) as Redis told it, once a second."""

    def note_position(self, position: int, now_ms: int, keep_ms: int) -> bool:
        """False when Redis went back; what is safe to delete counts anew then."""
        went_back = bool(self.seen) and position < self.seen[-1][1]
        if went_back:
            self.seen.clear()
        if not self.seen or (
            position > self.seen[-1][1] and now_ms - self.seen[-1][0] >= min(1_000, keep_ms)
        ):
            self.seen.append((now_ms, position))
        while len(self.seen) > 1 and now_ms - self.seen[1][0] >= keep_ms:
            self.seen.popleft()
        return not went_back

    def deletable(self, now_ms: int, keep_ms: int) -> int:
        """Up to where Redis has had the rows for long enough; 0 for nowhere."""
        return self.seen[0][1] if self.seen and now_ms - self.seen[0][0] >= keep_ms else 0

    def note_refusal(self, error: MqworkerError, now_ms: int) -> None:
        """Try again later, and with less of it where the queue is full."""
        self.trouble = str(error)
        if isinstance(error, QueueFull) and self.batch > 1:
            self.batch = max(1, self.batch // 4)
            return
        self.pause_ms = min(LONGEST_PAUSE_MS, max(FIRST_PAUSE_MS, 2 * self.pause_ms))
        self.again_at_ms = now_ms + self.pause_ms

    def note_moved(self) -> None:
        """All is well again."""
        self.trouble, self.pause_ms, self.again_at_ms = "", 0, 0
        self.batch = min(LARGEST_BATCH, 2 * self.batch)


class OutboxMover:
    """Moves the rows of one database. Not safe between threads."""

    def __init__(
        self,
        rows: OutboxRows,
        store: Store,
        options: WorkQueueOptions,
        log: Logger,
        *,
        keep_ms: int,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self.outbox = rows.identity()
        self.moved = 0
        self._rows = rows
        self._store = store
        self._options = options
        self._log = log
        self._keep_ms = keep_ms
        self._monotonic_ms = monotonic_ms
        self._progress: dict[QueueName, QueueProgress] = {}
        self._open: set[QueueName] = set()
        """Queues that may have rows to move."""
        self._registered: set[QueueName] = set()
        self._looks_around_at_ms = 0

    def move(self) -> int:
        """One pass; how many rows were moved. Raises `StoreUnavailable` when database or Redis is away."""
        self._open |= self._rows.number_new()
        now_ms = self._monotonic_ms()
        if now_ms >= self._looks_around_at_ms:
            self._open |= self._rows.queues()
            self._looks_around_at_ms = now_ms + LOOK_AROUND_MS
        due = [queue for queue in sorted(self._open) if self._of(queue).again_at_ms <= now_ms]
        before = self.moved
        for queue, position in self._positions(due).items():
            self._move_queue(queue, position)
        return self.moved - before

    def delete_moved(self) -> int:
        """Delete rows that Redis has had for long enough; how many."""
        now_ms, deleted = self._monotonic_ms(), 0
        positions = self._positions(sorted(self._progress))
        for queue, position in positions.items():
            safe = min(position, self._of(queue).deletable(now_ms, self._keep_ms))
            if safe:
                deleted += self._rows.delete_up_to(queue, safe)
        return deleted

    def waiting(self) -> Waiting:
        """What has not been moved."""
        return self._rows.waiting(self._positions(sorted(self._open)))

    def close(self) -> None:
        """Close the connections to the database."""
        self._rows.close()

    def troubles(self) -> dict[str, str]:
        """Queues that refuse what is to be moved, and why."""
        return {queue: each.trouble for queue, each in self._progress.items() if each.trouble}

    def _of(self, queue: QueueName) -> QueueProgress:
        return self._progress.setdefault(queue, QueueProgress())

    def _positions(self, queues: Sequence[QueueName]) -> dict[QueueName, int]:
        """How far each queue has come, as Redis says now; in one round trip."""
        if not queues:
            return {}
        metas = [self._calls(queue).keys.meta for queue in queues]
        replies = self._store.send_each([("HGET", meta, f"@{self._lane}") for meta in metas], metas)
        positions: dict[QueueName, int] = {}
        now_ms = self._monotonic_ms()
        for queue, reply in zip(queues, replies, strict=True):
            if isinstance(reply, StoreUnavailable):
                raise reply
            if isinstance(reply, MqworkerError):
                self._of(queue).note_refusal(reply, now_ms)
                continue
            positions[queue] = position = _position(reply)
            if not self._of(queue).note_position(position, now_ms, self._keep_ms):
                self._open.add(queue)
                self._log.warning("outbox_rewound", queue=queue, problem="Redis lost its newest writes")
        return positions

    def _move_queue(self, queue: QueueName, position: int) -> None:
        progress = self._of(queue)
        for _ in range(BATCHES_AT_ONCE):
            rows = self._rows.after(queue, position, progress.batch, LARGEST_BATCH_BYTES)
            if not rows:
                self._open.discard(queue)
                return
            messages = self._readable(rows)
            if not messages:
                continue
            outcome = self._send(queue, messages, follows=position, ends=rows[-1].position)
            if isinstance(outcome, StoreUnavailable):
                raise outcome
            if isinstance(outcome, StaleCall):
                return  # somebody else moved it, or Redis went back: the next pass asks where it is
            if isinstance(outcome, MqworkerError):
                progress.note_refusal(outcome, self._monotonic_ms())
                return
            position = rows[-1].position
            self.moved += len(messages)
            progress.note_moved()

    def _readable(self, rows: Iterable[Row]) -> list[Message]:
        """Their messages. What cannot be read leaves the order before anything is sent."""
        messages, bad = [], {}
        for row in rows:
            try:
                messages.append(aged(decode_row(row.call), row.age_ms))
            except InvalidMessage as error:
                bad[row.id] = str(error)
        if bad:
            self._rows.quarantine(bad)
            self._log.error("outbox_rows_quarantined", count=len(bad), reason=next(iter(bad.values())))
        return messages

    def _send(self, queue: QueueName, messages: Sequence[Message], *, follows: int, ends: int) -> object:
        self._register(queue)
        call = self._calls(queue).enqueue_following(messages)
        entry = Entry(call, self._lane, f"{ends}>{follows}")
        self._store.commit([entry])
        return entry.outcome

    def _register(self, queue: QueueName) -> None:
        if queue not in self._registered:
            registry = queues_key(self._options.namespace)
            self._store.send([("SADD", registry, queue)], registry)
            self._registered.add(queue)

    def _calls(self, queue: QueueName) -> WorkQueueCalls:
        return WorkQueueCalls(queue, self._options)

    @property
    def _lane(self) -> str:
        return f"outbox:{self.outbox}"


def _position(reply: object) -> int:
    """Of what stands under the name of a lane: `number at reply`; 0 for anything else."""
    return (parse_whole(reply.partition(b" ")[0]) or 0) if isinstance(reply, bytes) else 0
