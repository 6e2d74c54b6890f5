"""The catalogue: the queue models that an app can name for a queue, as values, and how each is opened.

    app.queue("legacy", model=Rsmq(vt=30))
    app.queue("verify", model=Gq(guarantee="at_most_once"))
    app.queue("orders", model=Gq(url="postgresql+psycopg://..."))
    app.queue("celery", model=CeleryQueue())

A queue without a model is a work queue. The values travel from workers to the dispatcher as plain data.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.names import queue_name, shown, whole_number
from mqworker.queues.celery.model import CeleryQueue as CeleryQueue  # noqa: PLC0414 - named here with the others
from mqworker.queues.gq.rules import GqLiveness, GqTerms, guarantee_named, sql_queue_name
from mqworker.queues.rsmq import arguments as rsmq_arguments
from mqworker.queues.rsmq.arguments import DEFAULT_MAXSIZE, DEFAULT_VT
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.queues.celery.queue import CeleryTaskQueue
    from mqworker.queues.gq.queue import GqQueue
    from mqworker.queues.rsmq.queue import RsmqQueue

SHORTEST_POLL_S, LONGEST_POLL_S = 0.01, 60.0
LONGEST_HEARTBEAT_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Rsmq:
    """A queue on the keys of RSMQ, shared with its clients in other languages."""

    vt: int = DEFAULT_VT
    """Seconds for which a message is hidden while its task runs; renewed in time, however long that takes."""
    maxsize: int = DEFAULT_MAXSIZE
    """The longest message in bytes, -1 for any; for a queue that does not exist yet."""
    namespace: str = "rsmq"
    realtime: bool = False
    """Whether sending tells the channel `<namespace>:rt:<queue>`, as clients with that switch do."""
    poll: float = 0.2
    """Seconds between two looks into an empty queue."""

    def __post_init__(self) -> None:
        rsmq_arguments.seconds("vt", whole_number("vt", self.vt, least=1, most=9_999_999))
        rsmq_arguments.maxsize(self.maxsize)
        rsmq_arguments.namespace(self.namespace)
        _check_flag("realtime", self.realtime)
        _check_seconds("poll", self.poll, SHORTEST_POLL_S, LONGEST_POLL_S)

    @property
    def title(self) -> str:
        """What the model is called in texts."""
        return "RSMQ"

    @property
    def wishes(self) -> frozenset[str]:
        """What a call may ask for beyond its turn."""
        return frozenset({"delay"})

    @property
    def is_once(self) -> bool:
        """Whether a message that has begun never begins again."""
        return False

    @property
    def reports_results(self) -> bool:
        """Whether what a task returns goes to the queue."""
        return False

    @property
    def lease_ms(self) -> int:
        """How long a delivery lasts without a renewal; then another consumer gets it."""
        return self.vt * 1000

    @property
    def renew_every_ms(self) -> int:
        """How often that is renewed."""
        return max(100, self.lease_ms // 3)


@dataclass(frozen=True, slots=True)
class Gq:
    """A gq queue: in Redis, or in the SQL database of a URL, where a call can join a transaction."""

    guarantee: str = "at_least_once"
    url: str | None = field(default=None, repr=False)  # may hold a password
    heartbeat: float = 2.0
    """Seconds between two signs of life of a node."""
    missed_beats: int = 2
    """A node that missed more than this many is dead: at least once, what it held is delivered again."""
    work_conserving: bool = True
    """Whether a node whose partition is empty takes what others left lying for a heartbeat."""
    poll: float = 0.2
    """Seconds between two looks into an empty queue."""

    def __post_init__(self) -> None:
        guarantee_named(self.guarantee)
        if self.url is not None and "://" not in str(self.url):
            raise InvalidArgument(
                "url is not a database URL; accepted are sqlite:///file, postgresql+psycopg://… and mysql+pymysql://…"
            )
        if self.url is not None and find_spec("sqlalchemy") is None:
            raise ConfigurationError("gq on SQL needs SQLAlchemy: pip install 'mqworker[sql]'")
        _check_seconds("heartbeat", self.heartbeat, 0.05, LONGEST_HEARTBEAT_S)
        whole_number("missed_beats", self.missed_beats, least=0, most=1_000_000)
        _check_flag("work_conserving", self.work_conserving)
        _check_seconds("poll", self.poll, SHORTEST_POLL_S, LONGEST_POLL_S)

    @property
    def title(self) -> str:
        """What the model is called in texts."""
        return "gq on Redis" if self.url is None else "gq on SQL"

    @property
    def wishes(self) -> frozenset[str]:
        """What a call may ask for beyond its turn."""
        return frozenset({"deadline"} if self.url is None else {"deadline", "connection"})

    @property
    def is_once(self) -> bool:
        """Whether a message that has begun never begins again."""
        return self.terms.is_at_most_once

    @property
    def reports_results(self) -> bool:
        """Whether what a task returns goes to the queue."""
        return False

    @property
    def lease_ms(self) -> int:
        """How long a delivery lasts without a heartbeat; then another consumer gets it."""
        return self.liveness.dead_after_ms

    @property
    def renew_every_ms(self) -> int:
        """How often the heart beats."""
        return self.liveness.interval_ms

    @property
    def liveness(self) -> GqLiveness:
        """The same as consumers of gq take it."""
        return GqLiveness(round(self.heartbeat * 1000), self.missed_beats)

    @property
    def terms(self) -> GqTerms:
        """What its consumers agree to."""
        guarantee = guarantee_named(self.guarantee)
        is_once = GqTerms(guarantee).is_at_most_once
        steal_after_ms = self.liveness.interval_ms if self.work_conserving else None
        return GqTerms(guarantee, reclaim_dead=not is_once, steal_after_ms=steal_after_ms)


Model: TypeAlias = Rsmq | Gq | CeleryQueue
OpenQueue: TypeAlias = "RsmqQueue | GqQueue | CeleryTaskQueue"

_KIND_BY_NAME: dict[str, type[Model]] = {"rsmq": Rsmq, "gq": Gq, "celery": CeleryQueue}
MODEL_TYPES = tuple(_KIND_BY_NAME.values())


def check_name(name: str, model: Model) -> None:
    """Each model has rules of its own for the names of queues; raises `InvalidArgument`."""
    queue_name(name)
    if isinstance(model, Rsmq):
        rsmq_arguments.queue_name(name)
    elif isinstance(model, Gq) and model.url is not None:
        sql_queue_name(name)


def open_queue(
    name: str, model: Model, store: Store, namespace: str, *, node: str | None = None
) -> OpenQueue:
    """The queue itself; `store` is what it uses in Redis, and stays the caller's.

    `node` names the consumer that a process goes on as, where the processes before it have ended.
    """
    # Imported here: most nodes have no queue of another model, and none pays for all.
    if isinstance(model, Rsmq):
        from mqworker.queues.rsmq.calls import RsmqOptions  # noqa: PLC0415
        from mqworker.queues.rsmq.queue import RsmqQueue  # noqa: PLC0415

        options = RsmqOptions(model.namespace, model.realtime)
        return RsmqQueue(name, store, options, vt=model.vt, maxsize=model.maxsize)
    if isinstance(model, CeleryQueue):
        from mqworker.queues.celery.queue import CeleryTaskQueue  # noqa: PLC0415

        return CeleryTaskQueue(name, store, model.options)
    from mqworker.queues.gq.client import GqClient  # noqa: PLC0415
    from mqworker.queues.gq.queue import GqQueue  # noqa: PLC0415

    if model.url is None:
        client = GqClient.on_redis(name, store, namespace=namespace)
    else:
        client = GqClient.on_sql(name, model.url)
    return GqQueue(client.store, model.liveness, model.terms, node=node)


def close_queue(queue: OpenQueue) -> None:
    """Let go of it: whoever is left need not find out by silence."""
    from mqworker.queues.gq.queue import GqQueue  # noqa: PLC0415 - as above

    if isinstance(queue, GqQueue):
        queue.leave()
        queue.close()


# Any: the fields of the two kinds, as they stand in a mail.
def as_plain(model: Model) -> dict[str, Any]:
    """The model as plain data."""
    kind = next(name for name, kind in _KIND_BY_NAME.items() if isinstance(model, kind))
    return {"kind": kind, **asdict(model)}


def from_plain(plain: dict[str, Any]) -> Model:
    """The model again."""
    fields = {name: value for name, value in plain.items() if name != "kind"}
    return _KIND_BY_NAME[plain["kind"]](**fields)


def public_facts(model: Model) -> dict[str, str]:
    """What a node shows of it to anybody. Without the URL, which may hold a password."""
    if isinstance(model, Rsmq):
        return {"model": model.title, "namespace": model.namespace}
    if isinstance(model, CeleryQueue):
        steps = " ".join(map(str, model.priority_steps))
        return {"model": model.title, "prefix": model.prefix, "steps": steps}
    return {"model": model.title}


def _check_flag(argument: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidArgument(f"{argument} is {shown(value)}; accepted are True and False")


def _check_seconds(argument: str, value: object, least: float, most: float) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return
    raise InvalidArgument(f"{argument} is {shown(value)}; accepted are {least:g} to {most:g} seconds")
