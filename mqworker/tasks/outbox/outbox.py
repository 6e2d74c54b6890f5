"""Outbox: what `app.outbox(engine)` gives, and how its calls and jobs differ from those that go to Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mqworker.errors import ConfigurationError, ResultTimeout
from mqworker.model.clock import SystemClock
from mqworker.model.message import Enqueued, Message
from mqworker.model.names import MessageId
from mqworker.store.procedure import Procedure, ResultT
from mqworker.tasks.connections import Sender
from mqworker.tasks.job import Job
from mqworker.tasks.outbox.writer import awrite, write
from mqworker.tasks.outcome import JobStatus
from mqworker.tasks.registry import TaskDefinition

if TYPE_CHECKING:
    from sqlalchemy import Engine, MetaData

R = TypeVar("R")

_LOOK_EVERY_S = 0.05


class Outbox:
    """Calls as rows in a database of the application; each is moved into Redis once it is committed."""

    # Any: an Engine, an AsyncEngine; SQLAlchemy is an extra.
    def __init__(self, engine: Any = None) -> None:  # noqa: ANN401 - same
        """`engine` makes the tables and tells jobs that wait in the outbox from unknown ones."""
        self._engine = engine

    @property
    def metadata(self) -> MetaData:
        """The tables, for `metadata.create_all` or the `target_metadata` of Alembic."""
        from mqworker.tasks.outbox.tables import metadata  # noqa: PLC0415 - an extra

        return metadata

    def create_table(self, engine: Engine | None = None) -> None:
        """Make the tables where they are missing."""
        from mqworker.tasks.outbox.tables import create_tables  # noqa: PLC0415 - an extra

        used = engine or self._sync_engine()
        if used is None:
            raise ConfigurationError(
                "the outbox has no engine; accepted are app.outbox(engine), create_table(engine), and for an "
                "AsyncEngine `await connection.run_sync(outbox.metadata.create_all)`"
            )
        create_tables(used)

    def is_waiting(self, message: MessageId) -> bool:
        """Whether a committed row of this message waits; False where nobody can tell."""
        engine = self._sync_engine()
        if engine is None:
            return False
        from sqlalchemy import select  # noqa: PLC0415 - an extra
        from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - same

        from mqworker.tasks.outbox.tables import ROWS  # noqa: PLC0415 - same

        try:
            with engine.connect() as connection:
                found = connection.execute(select(ROWS.c.id).where(ROWS.c.message == message)).first()
        except SQLAlchemyError:  # it is asked for a status, not for the state of the database
            return False
        return found is not None

    def _sync_engine(self) -> Engine | None:
        """None for an AsyncEngine, which only its own event loop can use."""
        return None if hasattr(self._engine, "sync_engine") else self._engine


class OutboxSender(Sender):
    """Sends to one queue by way of the outbox, in one transaction. Redis need not be there."""

    # Not the constructor of Sender: the same queue, keys and watch, another way in.
    def __init__(self, usual: Sender, outbox: Outbox, session: object) -> None:
        vars(self).update(vars(usual))
        # A sweep looks in Redis whether a payload is still needed, and would not find it there.
        self.payloads = None if usual.payloads is None else usual.payloads.without_offload()
        self.outbox = outbox
        self._session = session

    def send(self, message: Message) -> Enqueued:
        """Write a row."""
        return self.send_many((message,))[0]

    def send_many(self, messages: Sequence[Message]) -> list[Enqueued]:
        """Write rows."""
        write(self._session, self.work.name, messages)
        return [Enqueued(message.id, is_new=True) for message in messages]

    async def asend(self, *messages: Message) -> list[Enqueued]:
        """Write rows, in the transaction of an asynchronous session."""
        await awrite(self._session, self.work.name, messages)
        return [Enqueued(message.id, is_new=True) for message in messages]

    def job(self, stored: Enqueued, definition: TaskDefinition) -> Job[Any]:
        """Its handle: whether another message takes its place is known when it is moved."""
        return OutboxJob(stored.id, self, definition, is_new=None)

    async def afollow(self, procedure: Procedure[ResultT]) -> ResultT:
        """In a thread: what is asked of the database must not block the event loop either."""
        return await asyncio.to_thread(self.follow, procedure)


class OutboxJob(Job[R]):
    """A job whose call may still wait in the outbox."""

    __slots__ = ()

    def status(self) -> JobStatus:
        """Where it is now; `pending` in the outbox, `unknown` before its transaction committed."""
        status = super().status()
        return JobStatus.PENDING if status is JobStatus.UNKNOWN and self._is_waiting() else status

    async def astatus(self) -> JobStatus:
        """`status` for asyncio."""
        return await asyncio.to_thread(self.status)

    def result(self, timeout: float | None = None) -> R:
        """As `Job.result`; waits for the call to be moved, too."""
        clock = SystemClock()
        until_ms = None if timeout is None else clock.monotonic_ms() + round(timeout * 1000)
        while timeout != 0 and self.status() is JobStatus.PENDING:
            if until_ms is not None and clock.monotonic_ms() >= until_ms:
                raise ResultTimeout(f"job {self.id} waits in the outbox of its database after {timeout:g} s")
            time.sleep(_LOOK_EVERY_S)
        return super().result(None if until_ms is None else max(0, until_ms - clock.monotonic_ms()) / 1000)

    async def aresult(self, timeout: float | None = None) -> R:  # noqa: ASYNC109 - the same as `result`
        """`result` for asyncio."""
        return await asyncio.to_thread(self.result, timeout)

    def _is_waiting(self) -> bool:
        sender = self._sender
        return isinstance(sender, OutboxSender) and sender.outbox.is_waiting(self.id)
