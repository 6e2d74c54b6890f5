"""A database with an outbox, a Redis with an append-only file, and movers that stop at a chosen step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, select

from mqworker.log import get_logger
from mqworker.model.instant import Instant
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName
from mqworker.model.outbox_row import encode_row
from mqworker.model.settlement import Ack
from mqworker.queues.gq.sql.engine import database_now
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.tasks.ids import next_id
from mqworker.tasks.outbox.mover import OutboxMover
from mqworker.tasks.outbox.rows import OutboxRows
from mqworker.tasks.outbox.tables import ROWS, create_tables
from tests.support.messages import open_store
from tests.support.real_server import RealServer

HOUR_MS = 3_600_000


class Killed(BaseException):
    """The mover dies here: no handler of its own runs on."""


@dataclass
class ManualTime:
    """Milliseconds that pass when a test says so."""

    ms: int = 1_000_000

    def __call__(self) -> int:
        return self.ms


@dataclass
class OutboxPlace:
    """Both sides, and what was committed."""

    url: str
    server: RealServer
    queues: Sequence[str] = ("q",)
    time: ManualTime = field(default_factory=ManualTime)
    committed: list[MessageId] = field(default_factory=list)
    run: Counter[MessageId] = field(default_factory=Counter)
    keep_ms: int = 60_000

    def __post_init__(self) -> None:
        self.opened: list[OutboxRows] = []
        self.engine: Engine = self.open_rows()._engine
        create_tables(self.engine)
        self.store = open_store(self.server.url)
        self._stores = [self.store]

    def open_rows(self) -> OutboxRows:
        self.opened.append(OutboxRows.open(self.url))
        return self.opened[-1]

    def mover(self, on_step: Callable[[str], None] | None = None, keep_ms: int | None = None) -> OutboxMover:
        """As another process would make it; `on_step` hears of each statement, before and after it."""
        rows, store = self.open_rows(), open_store(self.server.url)
        self._stores.append(store)
        if on_step is not None:
            tell_steps(rows, ("number_new", "queues", "after", "quarantine", "delete_up_to"), on_step)
            tell_steps(store, ("send_each", "send", "commit"), on_step)
        return OutboxMover(
            rows,
            store,
            WorkQueueOptions(),
            get_logger(),
            keep_ms=self.keep_ms if keep_ms is None else keep_ms,
            monotonic_ms=self.time,
        )

    def commit(
        self, count: int = 1, *, due: Instant | None = None, queue: str | None = None
    ) -> list[MessageId]:
        """Calls, each in a transaction of its own, by turns for each queue."""
        ids = [next_id() for _ in range(count)]
        for number, each in enumerate(ids):
            with self.engine.begin() as connection:
                self.write(connection, each, queue or self.queues[number % len(self.queues)], due=due)
        self.committed += ids
        return ids

    def write(
        self, connection: Connection, message: MessageId, queue: str = "q", *, due: Instant | None = None
    ) -> None:
        """One row, in the caller's transaction."""
        call = encode_row(Message(message, b"\x92\x90\x80", "t", due=due))
        values = {"queue": queue, "message": message, "call": call}
        connection.execute(insert(ROWS).values(created_at_ms=database_now(self.engine), **values))

    def move_all(self, mover: OutboxMover) -> None:
        """Until nothing is left to move, in several passes."""
        for _ in range(50):
            self.time.ms += 6_000  # also what is looked at seldom
            if not mover.move() and not mover.waiting().rows:
                return

    def run_all(self) -> None:
        """As workers do it: claim and acknowledge everything."""
        for name in self.queues:
            queue = WorkQueue(name, self.store)
            while deliveries := queue.claim(100):
                self.run.update(each.id for each in deliveries)
                queue.settle(*[Ack(each) for each in deliveries])

    def assert_each_ran_once(self) -> None:
        assert self.run == Counter(self.committed)

    def rows_left(self) -> int:
        with self.engine.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(ROWS)).scalar_one())

    def queue(self, name: str = "q") -> WorkQueue:
        return WorkQueue(QueueName(name), self.store)

    def close(self) -> None:
        for store in self._stores:
            store.close()
        for rows in self.opened:
            rows.close()


def tell_steps(owner: object, names: Sequence[str], on_step: Callable[[str], None]) -> None:
    """Let `on_step` hear of each call of these methods; it may raise, or take its time."""
    for name in names:
        setattr(owner, name, _told(getattr(owner, name), name, on_step))


def _told(method: Callable[..., Any], name: str, on_step: Callable[[str], None]) -> Callable[..., Any]:
    def told(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - of whichever method
        on_step(f"before {name}")
        result = method(*arguments, **options)
        on_step(f"after {name}")
        return result

    return told


@dataclass
class KillAt:
    """Dies at the so-and-so-manieth step."""

    step: int
    seen: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if len(self.seen) == self.step:
            raise Killed(name)


@contextmanager
def dying() -> Iterator[None]:
    """What a mover does until it dies."""
    with suppress(Killed):
        yield
