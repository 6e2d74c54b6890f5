"""Every Redis key of work queues is built here, with its type, its owner and what it holds.

The keys of one queue share the hash tag `{queue}`, so that a Redis Cluster keeps them together and a script
may touch them all. A queue's bare name lies in the same slot: so the RedisMQ verbs see a foreign key there.
Scripts make some keys themselves, from the name of a declared one (decision 9):

    parked             zset   which of the delayed somebody could not run (parts/parked.lua)
    limited:<limits>   list   ids that wait for one combination of limits (parts/limited.lua)
    shares:<minute>    hash   weight~tenant -> how many were let in, a sample (admit.lua)
    slots              hash   id -> where and limits, of what occupies a slot (parts/slots.lua)
    running            hash   limit -> how many occupy a slot of it
    blocked:<limit>    list   limits that wait for one of its slots
    set                hash   limit -> how many, as set at run time
    closed             hash   name -> until ms, what is closed (parts/closing.lua)
    failures:<name>    list   instants of the latest failures, for a circuit breaker
    results:ends       zset   id -> ends at, ms, of results with a shorter life (parts/result_ends.lua)

A limit that queues share has `running`, `blocked` and `set` under `{limit:<name>}` instead.
docs/redis-keys.md lists all keys of all models.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqworker.model.names import DEFAULT_NAMESPACE, ConsumerName, QueueName, parse_consumer_name, parse_whole
from mqworker.model.quarantine import Quarantine

# One in each sixteenth of the slots, so that each of up to sixteen primaries has one (store/test_slots.py).
_BEATS_NUMBERS = (2950, 2840, 924, 834, 609, 719, 2090, 2180, 872, 962, 2806, 2916, 392, 282, 2810, 2900)


_DEFAULT_PREFIX = f"{DEFAULT_NAMESPACE}:{{"


def queues_key(namespace: str) -> str:
    """set: the names of all queues; written beside the scripts, for it lies in another slot."""
    return f"{namespace}:queues"


def orphans_key(namespace: str) -> str:
    """hash: name of a blob that nothing refers to -> since when, ms; never in a script."""
    return f"{namespace}:orphans"


def nodes_key(namespace: str) -> str:
    """set: the names of all nodes; those without a snapshot are gone."""
    return f"{namespace}:nodes"


def beats_keys(namespace: str) -> tuple[str, ...]:
    """Zsets, `consumer time-out` -> last beat, ms: spread over the slots, so that each primary has some.

    A single server needs only the first.
    """
    return tuple(f"{namespace}:{{beats:{number}}}:beats" for number in _BEATS_NUMBERS)


def node_key(namespace: str, node: str) -> str:
    """String with a time to live: a node's snapshot as JSON, written by one of its actors."""
    return f"{namespace}:node:{node}"


def outbox_key(namespace: str, outbox: str) -> str:
    """String with a time to live: the node that moves the rows of a database's outbox; others stand by."""
    return f"{namespace}:outbox:{outbox}"


SNAPSHOT_TTL_MS = 15_000
"""From what is left of it, the age of the snapshot is known."""


def workflow_key(namespace: str, workflow: str) -> str:
    """hash: plan and state of one workflow, in a slot of its own; also the channel that tells its end.

    What the fields are is written down in advance_workflow.lua; `t<node>` are the calls to be made.
    """
    return f"{namespace}:{{flow:{workflow}}}:state"


def workflows_key(namespace: str) -> str:
    """list: ids of the workflows that were enqueued last, the newest first; for whoever looks for one."""
    return f"{namespace}:workflows"


def schedules_key(namespace: str) -> str:
    """hash: app -> all its schedules as JSON, published by its workers when they start."""
    return f"{namespace}:schedules"


def strikes_key(namespace: str) -> str:
    """hash: id -> a strike as JSON (model/strike.py), written by people, read by dispatchers."""
    return f"{namespace}:strikes"


def accidents_key(namespace: str) -> str:
    """stream: workers that died over what they ran; see accidents.py."""
    return f"{namespace}:accidents"


def tasks_key(namespace: str) -> str:
    """hash: app -> how its tasks are called, as JSON, published by its workers when they start."""
    return f"{namespace}:tasks"


TYPE_BY_PART = {
    "meta": "hash",
    "ready": "list",
    "urgent": "zset",
    "delayed": "zset",
    "parcels": "hash",
    "leases": "zset",
    "deadlines": "zset",
    "guards": "hash",
    "dead": "zset",
    "letters": "hash",
    "results": "hash",
    "results:old": "hash",
    "waiters": "set",
    "consumers": "zset",
    "events": "stream",
    "outbox": "hash",
    "over": "set",
    "ticks": "hash",
    "limits": "zset",
    "buckets": "hash",
    "delivered": "zset",
    "popped": "hash",
    "samples": "list",
    "held:": "hash",
}
"""The type of each key of a work queue by the last part of its name; what is of another is not ours."""


@dataclass(frozen=True, slots=True)
class WorkQueueKeys:
    """The keys of one work queue, in the order in which every script receives them (parts/keys.lua)."""

    queue: QueueName
    shared: tuple[str, ...]
    prefix: str

    @classmethod
    def of(cls, namespace: str, queue: QueueName) -> WorkQueueKeys:
        """All keys of a queue."""
        prefix = f"{namespace}:{{{queue}}}:"
        shared = (
            f"{prefix}meta",  # hash: counters, switches, newest call of each lane; also the wake-up channel
            f"{prefix}ready",  # list: records in the order of delivery, oldest on the left
            f"{prefix}urgent",  # zset: records with a priority, by priority and arrival
            f"{prefix}delayed",  # zset: id -> due at, ms
            f"{prefix}parcels",  # hash: id -> record, of the delayed
            f"{prefix}leases",  # zset: fence -> ends at, ms; only leases that expire
            f"{prefix}deadlines",  # zset: id -> deadline, ms, of waiting messages that have one
            f"{prefix}guards",  # hash: guard key -> 'id expires_at_ms'
            f"{prefix}dead",  # zset: id -> buried at, ms
            f"{prefix}letters",  # hash: id -> '<length> <letter><record>', of the dead
            f"{prefix}results",  # hash: id -> 'S<result>' done, 'C' cancelled, 'E' expired, 'X' asked to stop
            f"{prefix}results:old",  # hash: the same of the period before, dropped whole by and by
            f"{prefix}waiters",  # set: ids that somebody waits for; announced on the channel `done`
            f"{prefix}consumers",  # zset: consumer -> last heartbeat, ms
            f"{prefix}events",  # stream: blocks of events
            f"{prefix}outbox",  # hash: member of a workflow -> how it ended; drained by the broker
            f"{prefix}over",  # set: ids that expired where they lay in the line, holding guards
            f"{prefix}ticks",  # hash: schedule -> its newest tick, ms; pause:<schedule> -> its pause
            f"{prefix}limits",  # zset: limits -> look again at, ms
            f"{prefix}buckets",  # hash: bucket of a rate limit -> full at, ms
        )
        return cls(queue, shared, prefix)

    @property
    def meta(self) -> str:
        """The hash of counters and switches; its name is the wake-up channel too."""
        return self.shared[0]

    @property
    def plain(self) -> tuple[str, ...]:
        """The few keys that enqueueing plain messages needs."""
        return (*self.shared[:4], self.events)

    @property
    def calls_for_broker(self) -> str:
        """The channel on which scripts say that something is due sooner, or waits in the outbox."""
        return self.shared[3]

    @property
    def done(self) -> str:
        """The channel on which awaited ids are announced when they end."""
        return f"{self.prefix}waiters"

    @property
    def events(self) -> str:
        """The stream of event blocks."""
        return self.shared[14]

    def held(self, consumer: ConsumerName | None) -> str:
        """hash: fence -> record, what one consumer holds; nobody's where the lease expires."""
        return f"{self.prefix}held:{consumer or ''}"

    def begin(self, consumer: ConsumerName, worker: int) -> str:
        """Channel: what one of a consumer's workers may start early."""
        return f"{self.prefix}begin:{consumer}:{worker}"

    def bulk(self, run: str) -> str:
        """Hash with a time to live: part of a bulk run -> 'rows digest', how far it is stored."""
        return f"{self.prefix}bulk:{run}"

    def named(self, name: str) -> str:
        """One of the shared keys by its last part, for views that only read."""
        return f"{self.prefix}{name}"

    @property
    def rqueue(self) -> tuple[str, ...]:
        """With the RedisMQ verbs' own: delivered (zset id -> order), popped (hash id -> text), bare name.

        In a namespace of its own the bare name begins with that, too: a tenant of the server may touch no
        other, and has nothing to do with what lies there.
        """
        bare = self.queue if self.prefix.startswith(_DEFAULT_PREFIX) else self.prefix.removesuffix(":")
        return (*self.shared, f"{self.prefix}delivered", f"{self.prefix}popped", bare)


def readable_consumers(key: str, names: Iterable[object], quarantine: Quarantine) -> Iterator[ConsumerName]:
    """Consumers as they are registered under `key`; a name that none can have belongs to nobody."""
    for raw in names:
        name = parse_consumer_name(raw)
        if name is not None:
            yield name
        elif isinstance(raw, bytes):
            quarantine.note("consumer", key, "no name of a consumer", raw, remove_by="ZREM")


def readable_fences(key: str, fields: Iterable[bytes], quarantine: Quarantine) -> Iterator[int]:
    """Fences of what a consumer holds under `key`."""
    for raw in fields:
        fence = parse_whole(raw)
        if fence is not None:
            yield fence
        else:
            quarantine.note("fence", key, "no fence", raw, remove_by="HDEL")


def counter(text: str) -> int:
    """A counter of a queue; 0 for anything that is not a number."""
    return parse_whole(text.encode()) or 0
