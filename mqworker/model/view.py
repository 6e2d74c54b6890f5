"""Views: what `status` and its kind show of a server, its nodes and its queues. Values, read elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mqworker.model.quarantine import BadEntry, BadPlace, entry_of, merged, place_of
from mqworker.model.throughput import Throughput
from mqworker.model.waits import WaitView, waits_in

WORKER_ROLE = "worker"
LIVE_STATE = "live"
PARKED_STATE = "parked"


@dataclass(frozen=True, slots=True)
class ServerView:
    """The server; with several primaries: the sum of their memory, the weakest of the rest."""

    product: str
    version: str
    used_bytes: int
    limit_bytes: int
    """0 where the server has no limit of its own."""
    is_append_only: bool
    primaries: int = 1
    troubles: tuple[str, ...] = ()
    """What the server complains about, in words."""


@dataclass(frozen=True, slots=True)
class ChildView:
    """One child of a supervisor, as its snapshot tells."""

    name: str
    role: str
    state: str
    pid: int | None = None
    generation: int = 1
    restarts: int = 0
    last_exit: str | None = None
    retry_in_ms: int | None = None
    """While it is parked: how long until it is tried again."""
    silent_ms: int | None = None
    """Since its loop answered last."""
    progress: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)  # Any: plain values, each actor has its own

    @property
    def is_worker(self) -> bool:
        """Whether it runs user code."""
        return self.role == WORKER_ROLE


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node that beats."""

    name: str
    app: str | None = None
    pid: int | None = None
    started_at_ms: int | None = None
    is_draining: bool = False
    age_ms: int = 0
    """How old its snapshot is."""
    children: tuple[ChildView, ...] = ()
    problem: str | None = None
    """What the supervisor was asked for and could not do."""
    drain_s: float | None = None
    """How long it may take to stop; None: an older node, which does not tell."""
    drain_why: str | None = None

    @property
    def queues(self) -> frozenset[str]:
        """The queues that its dispatcher consumes."""
        return frozenset(
            str(name)
            for child in self.children
            if child.role == "dispatcher"
            for name in _listed(child.facts.get("queues"))
        )

    @property
    def models(self) -> dict[str, Mapping[str, object]]:
        """Those of its queues that are not work queues: model, how many are held, what is wrong."""
        found: dict[str, Mapping[str, object]] = {}
        for child in self.children:
            models = child.facts.get("models") if child.role == "dispatcher" else None
            if isinstance(models, Mapping):
                found |= {str(name): facts for name, facts in models.items() if isinstance(facts, Mapping)}
        return found

    @property
    def quarantined(self) -> list[BadEntry]:
        """What its actors skip, because they cannot use it."""
        entries = (entry_of(fields) for fields in self._quarantine("entries"))
        return [entry for entry in entries if entry is not None]

    @property
    def bad_places(self) -> list[BadPlace]:
        """Where that lies, and how many entries there are."""
        places = (place_of(fields) for fields in self._quarantine("places"))
        return merged(place for place in places if place is not None)

    @property
    def has_more_bad_places(self) -> bool:
        """Whether there are more places than an actor can remember."""
        told = (child.facts.get("quarantine") for child in self.children)
        return any(isinstance(each, Mapping) and each.get("more_places") is True for each in told)

    def _quarantine(self, part: str) -> list[Mapping[str, object]]:
        found: list[object] = []
        for child in self.children:
            quarantine = child.facts.get("quarantine")
            found += _listed(quarantine.get(part)) if isinstance(quarantine, Mapping) else ()
        return [fields for fields in found if isinstance(fields, Mapping)]

    @property
    def held_by_worker(self) -> dict[str, int]:
        """How many deliveries each worker holds."""
        held: dict[str, int] = {}
        for child in self.children:
            workers = child.facts.get("workers") if child.role == "dispatcher" else None
            if isinstance(workers, Mapping):
                held |= {str(name): count for name, count in workers.items() if isinstance(count, int)}
        return held

    @property
    def running_workers(self) -> frozenset[str]:
        """The workers that run something."""
        return frozenset(
            str(name)
            for child in self.children
            if child.role == "dispatcher"
            for name in child.facts.get("busy", ())
        )

    @property
    def unanswered_ms_by_worker(self) -> dict[str, int]:
        """Workers that the dispatcher asked which deliveries they have, and since when it waits."""
        waited: dict[str, int] = {}
        for child in self.children:
            asked = child.facts.get("unanswered_ms") if child.role == "dispatcher" else None
            if isinstance(asked, Mapping):
                waited |= {str(name): ms for name, ms in asked.items() if isinstance(ms, int)}
        return waited

    @property
    def waits(self) -> list[WaitView]:
        """Which of its tasks wait for the results of others."""
        workers = (child for child in self.children if child.is_worker)
        return [wait for child in workers for wait in waits_in(child.facts, self.name, child.name)]

    def runner_of(self, message: str) -> tuple[str, int] | None:
        """Which of its workers has had a message for a while, and for how many ms."""
        for child in self.children:
            running = child.facts.get("running") if child.role == "dispatcher" else None
            for worker, held in running.items() if isinstance(running, Mapping) else ():
                for entry in held if isinstance(held, list) else ():
                    match entry:
                        case [str() as found, int() as age_ms] if found == message:
                            return str(worker), age_ms + self.age_ms
                        case _:
                            pass
        return None


def _listed(value: object) -> Sequence[object]:
    """A list in a snapshot, which another program may have written."""
    return value if isinstance(value, list | tuple) else ()


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """Somebody who claims from a queue by name."""

    name: str
    silent_ms: int
    held: int


@dataclass(frozen=True, slots=True)
class ParkedView:
    """Messages of one task that nobody could run for a while."""

    task: str
    count: int
    is_unknown: bool
    """Whether no node knows the task; else the calls fit none of the versions that nodes have."""

    @property
    def text(self) -> str:
        """What they wait for, in words."""
        wait = "1 message waits" if self.count == 1 else f"{self.count:,} messages wait"
        if self.is_unknown:
            return f"{wait} for task {self.task}, which no node knows"
        return f"{wait} for task {self.task}, whose signature the calls do not fit"


@dataclass(frozen=True, slots=True)
class QueueView:
    """One queue, now."""

    name: str
    ready: int = 0
    delayed: int = 0
    limited: int = 0
    """Those of the delayed that wait for a permit of their rate limit, and not for an instant."""
    leased: int = 0
    delivered: int = 0
    dead: int = 0
    oldest_ms: int | None = None
    """The age of the message at the front, from when it was enqueued first."""
    is_paused: bool = False
    paused_at_ms: int | None = None
    limit: int | None = None
    totals: Mapping[str, int] = field(default_factory=dict)
    consumers: tuple[ConsumerView, ...] = ()
    throughput: Throughput | None = None
    trouble: str | None = None
    """Why it could not be read; then nothing else is known of it."""
    parked: tuple[ParkedView, ...] = ()
    """Of the delayed: those that nobody could run so far."""

    @property
    def waiting(self) -> int:
        """Messages that nobody holds yet."""
        return self.ready + self.delayed

    @property
    def drain_s(self) -> float | None:
        """How long until nothing is ready any more, if all goes on as in the last seconds; None if never."""
        return None if self.throughput is None else self.throughput.drain_s(self.ready)


@dataclass(frozen=True, slots=True)
class SystemView:
    """Everything behind one namespace of one server."""

    at_ms: int
    namespace: str
    server: ServerView
    nodes: tuple[NodeView, ...] = ()
    queues: tuple[QueueView, ...] = ()
    idle_queues: int = 0
    """Where there are very many: how many hold nothing, and so are not among `queues`."""
    idle_totals: Mapping[str, int] = field(default_factory=dict)
    """Their counters together."""
    is_partial: bool = False
    """Whether a part of a cluster was away, so that there may be more nodes and queues than these."""
    long_waits: tuple[WaitView, ...] = ()
    """Tasks that have waited for a while for the result of another, and where that one is."""

    def consuming_nodes(self, queue: QueueView) -> tuple[NodeView, ...]:
        """The nodes that take from this queue."""
        return tuple(node for node in self.nodes if queue.name in node.queues and not node.is_draining)

    @property
    def quarantined(self) -> list[BadEntry]:
        """What nodes skip, each once; of very many in one place, some."""
        found = [bad for node in self.nodes for bad in node.quarantined]
        return list({(bad.kind, bad.where, bad.entry): bad for bad in found}.values())

    @property
    def bad_places(self) -> list[BadPlace]:
        """Where nodes skip something, and how much; each place once."""
        return merged(place for node in self.nodes for place in node.bad_places)

    @property
    def has_more_bad_places(self) -> bool:
        """Whether there are more such places than nodes can remember."""
        return any(node.has_more_bad_places for node in self.nodes)

    def is_consumed(self, queue: QueueView, silent_ms: int) -> bool:
        """Whether a node takes from this queue, or another consumer that was heard lately."""
        return bool(self.consuming_nodes(queue)) or any(
            consumer.silent_ms < silent_ms for consumer in queue.consumers
        )
