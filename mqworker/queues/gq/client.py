"""gq as a library: producers and consumers of one queue, on Redis or on a SQL database.

Messages are partitioned among the active consumers by `id mod N`; each consumer claims the oldest of its
partition, and a claim succeeds for one consumer only. Statuses, deadlines and both guarantees follow the gq
document; `mqworker.queues.gq.rules` states the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mqworker.errors import ConfigurationError
from mqworker.model.names import DEFAULT_NAMESPACE
from mqworker.queues.gq.consumer import GqConsumer, Process
from mqworker.queues.gq.database import GqStore
from mqworker.queues.gq.producer import DEFAULT_LINGER_MS, GqProducer
from mqworker.queues.gq.redis_database import GqRedis
from mqworker.queues.gq.rules import (
    GqConsumerRecord,
    GqLiveness,
    GqRecord,
    GqRetention,
    GqStatus,
    GqTerms,
    Guarantee,
    guarantee_named,
)
from mqworker.store.store import Store

if TYPE_CHECKING:
    from sqlalchemy import Engine

_REDIS_SCHEMES = ("redis://", "rediss://", "redis+", "rediss+", "unix://")

DEFAULT_LIVENESS = GqLiveness()
DEFAULT_RETENTION = GqRetention()


class GqClient:
    """One queue. Makes producers and consumers, and shows what is stored."""

    def __init__(self, store: GqStore) -> None:
        self.store = store

    @classmethod
    def from_url(cls, name: str, url: str, *, namespace: str = DEFAULT_NAMESPACE) -> Self:
        """A queue by URL alone, in Redis (`redis://…`) or in a SQL database (`sqlite:///jobs.db`).

        `close` or `with` closes what was opened.
        """
        if not url.startswith(_REDIS_SCHEMES):
            return cls.on_sql(name, url)
        database = GqRedis(name, Store.from_url(url), namespace=namespace)
        database.owns_store = True
        return cls(database)

    @classmethod
    def on_redis(cls, name: str, store: Store, *, namespace: str = DEFAULT_NAMESPACE) -> Self:
        """A queue in Redis; closing the store is the caller's."""
        return cls(GqRedis(name, store, namespace=namespace))

    @classmethod
    def on_sql(cls, name: str, database: str | Engine) -> Self:
        """A queue in a SQL database, whose tables are created if missing.

        By URL (`sqlite:///jobs.db`, `postgresql+psycopg://…`), or an engine that stays the caller's.
        """
        try:
            from mqworker.queues.gq.sql.database import GqSql  # noqa: PLC0415 - SQLAlchemy is an extra
        except ModuleNotFoundError as error:
            raise ConfigurationError("gq on SQL needs SQLAlchemy: pip install 'mqworker[sql]'") from error
        return cls(GqSql(name, database))

    def producer(self, push_batch: int = 1, *, linger_ms: int | None = DEFAULT_LINGER_MS) -> GqProducer:
        """A producer that pushes so many messages at once; a partial batch is pushed after `linger_ms`."""
        return GqProducer(self.store, push_batch, linger_ms)

    def consumer(
        self,
        process: Process | None = None,
        *,
        pop_batch: int = 10,
        guarantee: str = Guarantee.AT_LEAST_ONCE,
        liveness: GqLiveness = DEFAULT_LIVENESS,
        max_retries: int | None = None,
        reclaim_dead: bool = False,
        work_conserving: bool = False,
        fail_expired: bool = False,
        retain_done: GqRetention = DEFAULT_RETENTION,
    ) -> GqConsumer:
        """A consumer; it registers with its first heartbeat or pop. `process` is needed by `run` only."""
        terms = GqTerms(
            guarantee_named(guarantee),
            max_retries,
            reclaim_dead,
            liveness.interval_ms if work_conserving else None,
            fail_expired,
            retain_done,
        )
        return GqConsumer(self.store, process, pop_batch, liveness, terms)

    def find(self, message: int) -> GqRecord | None:
        """A message as it is stored; None when there is none, or none any more."""
        return self.store.find(message)

    def counts(self) -> Mapping[GqStatus, int]:
        """How many messages are stored in each status."""
        return self.store.counts()

    def consumers(self) -> list[GqConsumerRecord]:
        """All records of consumers, in the order of birth."""
        return self.store.consumers()

    def close(self) -> None:
        """Close what was opened for this client."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
