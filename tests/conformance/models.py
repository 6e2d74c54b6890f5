"""The queue models under test, one line each, and the servers that they may ask for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from mqworker.model.clock import SystemClock
from mqworker.queues.celery.queue import CeleryOptions, CeleryTaskQueue
from mqworker.queues.gq.queue import GqQueue
from mqworker.queues.gq.redis_database import GqRedis
from mqworker.queues.queue_model import Capability
from mqworker.queues.rsmq.calls import RsmqOptions
from mqworker.queues.rsmq.queue import RsmqQueue
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.testing.memory_connection import MemoryConnection
from tests.support.messages import new_id, open_store
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

AnyQueue: TypeAlias = Any
"""Beside `QueueModel`, a queue has the verbs that its capabilities promise; no type says which."""

SHORT_WINDOW_MS = 300
"""How long a chosen id stays taken after its message ended, in tests that wait for that."""


@dataclass
class Servers:
    """Started when first asked for, stopped together."""

    running: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def single(self) -> Store:
        """A store on one server."""
        return self._store_on(self.running.enter_context(RealServer()).url)

    @cached_property
    def cluster(self) -> Store:
        """A store on a cluster of three."""
        return self._store_on(self.running.enter_context(RealCluster()).url)

    @cached_property
    def memory(self) -> Store:
        """A store on the server that mqworker.testing gives to users; here it goes by the real time."""
        return Store(MemoryConnection(SystemClock()))

    def _store_on(self, url: str) -> Store:
        store = open_store(url)
        self.running.callback(store.close)
        return store


@dataclass(frozen=True)
class Model:
    """A queue model: what it can do, and how to open an empty queue of it."""

    name: str
    capabilities: Capability
    open: Callable[[Servers], AnyQueue]


def _work_queue(store: Store) -> WorkQueue:
    return WorkQueue(f"q-{new_id()}", store, WorkQueueOptions(dedup_window_ms=SHORT_WINDOW_MS))


def _rsmq_queue(store: Store, namespace: str) -> RsmqQueue:
    return RsmqQueue(f"q-{new_id()}", store, RsmqOptions(namespace), maxsize=-1)


def _celery_queue(store: Store, prefix: str) -> CeleryTaskQueue:
    return CeleryTaskQueue(f"q-{new_id()}", store, CeleryOptions(prefix=prefix, result_prefix=prefix))


def _gq_queue(store: Store) -> GqQueue:
    return GqQueue(GqRedis(f"q-{new_id()}", store))


MODELS = (
    Model("work", WorkQueue.capabilities, lambda servers: _work_queue(servers.single)),
    Model("work-on-a-cluster", WorkQueue.capabilities, lambda servers: _work_queue(servers.cluster)),
    Model("work-in-memory", WorkQueue.capabilities, lambda servers: _work_queue(servers.memory)),
    Model("rsmq", RsmqQueue.capabilities, lambda servers: _rsmq_queue(servers.single, "rsmq")),
    Model("rsmq-cluster", RsmqQueue.capabilities, lambda servers: _rsmq_queue(servers.cluster, "{rsmq}")),
    Model("celery", CeleryTaskQueue.capabilities, lambda servers: _celery_queue(servers.single, "")),
    Model(
        "celery-cluster", CeleryTaskQueue.capabilities, lambda servers: _celery_queue(servers.cluster, "{c}:")
    ),
    Model("gq", GqQueue.capabilities, lambda servers: _gq_queue(servers.single)),
    Model("gq-on-a-cluster", GqQueue.capabilities, lambda servers: _gq_queue(servers.cluster)),
)
