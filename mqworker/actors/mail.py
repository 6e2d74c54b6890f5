"""Mail: the values that actors send one another, and their form on the wire (msgpack, never pickle).

Commands are imperative, facts in the past tense. A closed union: `Mail` lists all of them, and the position
in it is the code on the wire; both ends are always of the same build, for one supervisor starts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import msgpack

from mqworker.actors.frame import BrokenFrame


@dataclass(frozen=True, slots=True)
class Hello:
    """child → supervisor: this process is ready to work."""

    actor: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ping:
    """supervisor → child: answer from your main loop."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """child → supervisor: my main loop turns; what it did so far and how it is."""

    number: int
    progress: int
    facts: dict[str, Any]  # small plain values for the status screen


@dataclass(frozen=True, slots=True)
class Attach:
    """supervisor → child: the descriptor that comes with this mail is your pipe to that peer."""

    peer: str


@dataclass(frozen=True, slots=True)
class Drain:
    """supervisor → child: take nothing new, finish what you have within so many milliseconds, then exit."""

    grace_ms: int


@dataclass(frozen=True, slots=True)
class Drained:
    """child → supervisor: I have nothing left to do."""


@dataclass(frozen=True, slots=True)
class KillWorker:
    """dispatcher → supervisor: a hard time-out passed, or the worker must go for another reason."""

    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class RetireWorker:
    """supervisor → dispatcher: give this worker nothing more; let it go when it has no delivery left."""

    worker: str


@dataclass(frozen=True, slots=True)
class KeepWorkers:
    """supervisor → dispatcher: let nobody go that wants to leave, for nobody could take its place; or do."""

    are_kept: bool


@dataclass(frozen=True, slots=True)
class WorkerLeaving:
    """worker → dispatcher: I have run long enough, or grown too large; give me nothing more."""

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """supervisor → dispatcher: how a worker ended, the evidence for what it was running."""

    worker: str
    cause: str
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """worker → dispatcher: the app is imported; these are its tasks and how much it runs at once."""

    tasks: dict[str, dict[str, Any]]
    """By name: queue, async, once, limited, retries, max_losses, version; batch where it takes some."""
    queues: dict[str, dict[str, Any]]  # name -> {"weight": int}
    threads: int
    concurrency: int
    held: list[list[Any]] = field(default_factory=list)
    """What it has from a dispatcher before this one and nobody has accepted: each queue, fence, task, record,
    and the first fence of its batch (0: it runs by itself). The record is empty where the server keeps it,
    which is in work queues."""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class StandReady:
    """dispatcher → worker: these channels bring messages for an early start; go on with what you have."""

    queue_by_channel: dict[str, str]
    stale: list[list[Any]] = field(default_factory=list)
    """Queue and fence of deliveries that it holds and must not begin any more: somebody else has them."""


@dataclass(frozen=True, slots=True)
class RunDeliveries:
    """dispatcher → worker: run these, in order."""

    queue: str
    fences: list[int]
    records: list[bytes]
    start_by_ms: dict[int, int] = field(default_factory=dict)
    """fence → until when its permit is valid (monotonic ms), of limited ones."""
    accepted: list[int] = field(default_factory=list)
    """As in `ReportsAccepted`, which is saved this way while there is work."""
    stint_ms: int = 10
    """After so long the worker reports, and a single task that takes longer is slow."""
    are_together: bool = False
    """Whether they run in one call, of a task that takes batches."""


@dataclass(frozen=True, slots=True)
class ReportsAccepted:
    """dispatcher → worker: the reports of these numbers are stored, forget them."""

    numbers: list[int]


@dataclass(frozen=True, slots=True)
class DeliveriesFinished:
    """worker → dispatcher: settle these; `arguments` are those of settle.lua, made where the task ran."""

    queue: str
    fences: list[int]
    arguments: list[Any]  # str, bytes and int: what the script takes
    run_ms_by_task: dict[str, tuple[int, float]]  # task -> how many, milliseconds together
    number: int = 0
    """Counted by the worker, which keeps the report until this number is accepted."""
    telemetry: list[Any] = field(default_factory=list)
    """What the exporter is to have of these runs; see model/telemetry.py. Empty while nothing is traced."""


@dataclass(frozen=True, slots=True)
class StrikesSet:
    """dispatcher → worker: calls that are not to be run (model/strike.py), all of them, each time."""

    strikes: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class RunsCounted:
    """worker → dispatcher, once a second while it runs something: figures of its tasks (model/figures.py)."""

    figures: list[list[Any]]


@dataclass(frozen=True, slots=True)
class DeliveriesReturned:
    """worker → dispatcher: not begun, give them to somebody else."""

    queue: str
    fences: list[int]


@dataclass(frozen=True, slots=True)
class ListDeliveries:
    """dispatcher → worker: which deliveries do you have? Asked of one that was silent for a while."""

    number: int


@dataclass(frozen=True, slots=True)
class DeliveriesListed:
    """worker → dispatcher: these, begun or not; all others were reported or returned before."""

    number: int
    fences_by_queue: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class CancelDelivery:
    """dispatcher → worker: somebody wants this message stopped."""

    id: str


@dataclass(frozen=True, slots=True)
class AbandonDelivery:
    """dispatcher → worker: its lease was lost, somebody else has it; stop if you can."""

    queue: str
    fence: int


@dataclass(frozen=True, slots=True)
class DeliveryBuried:
    """dispatcher → worker: a worker died over this message, too often as a rule; let the hooks know."""

    queue: str
    fence: int
    record: bytes
    reason: str
    error: str
    message: str
    is_buried: bool = True
    """False: it is run again."""


@dataclass(frozen=True, slots=True)
class TelemetryGathered:
    """dispatcher → exporter: pass this on."""

    entries: list[Any]  # see model/telemetry.py
    dropped: int = 0
    """How many entries were dropped before these, because the exporter did not keep up."""


@dataclass(frozen=True, slots=True)
class TelemetryTaken:
    """exporter → dispatcher: so many entries arrived; there is room for as many more."""

    count: int


@dataclass(frozen=True, slots=True)
class RunsLost:
    """dispatcher → exporter: runs whose worker died: nobody else can write their spans."""

    worker: str
    cause: str
    runs: list[list[Any]]  # each: queue, fence, record, outcome, error, when it began (ms since 1970)
    ended_at_ms: int


@dataclass(frozen=True, slots=True)
class PermitsWanted:
    """dispatcher → rate limiter: so many more limited messages could run now."""

    queue: str
    count: int


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """supervisor → an actor that lives: how this node is, to be shown to whoever asks Redis."""

    node: str
    number: int
    facts: dict[str, Any]  # plain values


@dataclass(frozen=True, slots=True)
class NodeShown:
    """an actor → supervisor: the snapshot of this number can be read in Redis."""

    number: int


@dataclass(frozen=True, slots=True)
class SnapshotWanted:
    """monitor → supervisor: send me a NodeSnapshot with this number; an answer shows that your loop turns."""

    number: int


@dataclass(frozen=True, slots=True)
class ConsumerStarted:
    """supervisor → heartbeat reaper: beat for this consumer of ours."""

    consumer: str


@dataclass(frozen=True, slots=True)
class ConsumerGone:
    """supervisor → heartbeat reaper: it is dead and so are its workers; release what it held, now."""

    consumer: str


@dataclass(frozen=True, slots=True)
class GatewayCalls:
    """gateway → broker or dispatcher: carry these out; the same mail again changes nothing."""

    numbers: list[int]
    calls: list[list[Any]]  # each: verb, plain values
    lane: str
    turn: int
    """Lane and turn make the numbering of whatever scripts the calls come to; see store/exchange.py."""
    is_apart: bool = False
    """Whether each is to be carried out on its own, because together they were refused."""


@dataclass(frozen=True, slots=True)
class GatewayReplies:
    """broker or dispatcher → gateway: what became of calls, by their numbers."""

    numbers: list[int]
    replies: list[list[Any]]  # each: True and the value, or False, the kind of error and a text


@dataclass(frozen=True, slots=True)
class WatchQueues:
    """gateway → dispatcher: these are the queues at which somebody waits for the next message."""

    queues: list[str]


@dataclass(frozen=True, slots=True)
class QueuesWoken:
    """dispatcher → gateway: there may be something in these queues now."""

    queues: list[str]


@dataclass(frozen=True, slots=True)
class PeerAttached:
    """loop → its own actor: a pipe to this peer is there."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """loop → its own actor: the pipe to this peer was closed at the other end."""

    peer: str


Mail = (
    Hello
    | Ping
    | Pong
    | Attach
    | Drain
    | Drained
    | KillWorker
    | RetireWorker
    | KeepWorkers
    | WorkerLeaving
    | WorkerExited
    | WorkerReady
    | StandReady
    | RunDeliveries
    | ReportsAccepted
    | DeliveriesFinished
    | DeliveriesReturned
    | ListDeliveries
    | DeliveriesListed
    | CancelDelivery
    | AbandonDelivery
    | DeliveryBuried
    | PermitsWanted
    | NodeSnapshot
    | NodeShown
    | SnapshotWanted
    | ConsumerStarted
    | ConsumerGone
    | GatewayCalls
    | GatewayReplies
    | WatchQueues
    | QueuesWoken
    | PeerAttached
    | PeerLost
    | RunsCounted
    | StrikesSet
    | TelemetryGathered
    | TelemetryTaken
    | RunsLost
)

_KINDS: tuple[type[Mail], ...] = Mail.__args__
_CODE_BY_KIND = {kind: code for code, kind in enumerate(_KINDS)}
_FIELDS_BY_KIND = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS}


def encode_mail(mail: Mail) -> bytes:
    """Mail as the payload of a frame."""
    kind = type(mail)
    values = [getattr(mail, name) for name in _FIELDS_BY_KIND[kind]]
    payload: bytes = msgpack.packb([_CODE_BY_KIND[kind], *values], use_bin_type=True)
    return payload


def decode_mail(payload: bytes) -> Mail:
    """The mail of a frame; raises `BrokenFrame` when it cannot be read."""
    try:
        code, *values = msgpack.unpackb(payload, raw=False, strict_map_key=False)
        mail: Mail = _KINDS[code](*values)
    except (ValueError, TypeError, IndexError) as error:
        raise BrokenFrame(f"a frame that is not mail: {payload[:32]!r}") from error
    return mail
