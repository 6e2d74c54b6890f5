"""Snapshots: read-only views of the server, all nodes and all queues, in two or three round trips in total.

A server is asked in pipelines: names first, then all queues at once, then all nodes. In a cluster each of
its servers is, for what lives there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeGuard, cast

from mqworker.errors import MqworkerError, StoreRefused, StoreUnavailable
from mqworker.model.names import LARGEST_WHOLE, QueueName, parse_queue_name, parse_whole
from mqworker.model.settlement import UNKNOWN_TASK
from mqworker.model.throughput import Sample, Throughput
from mqworker.model.view import (
    ChildView,
    ConsumerView,
    NodeView,
    ParkedView,
    QueueView,
    ServerView,
    SystemView,
)
from mqworker.model.waits import WaitView
from mqworker.queues.work.keys import (
    SNAPSHOT_TTL_MS,
    WorkQueueKeys,
    beats_keys,
    node_key,
    nodes_key,
    queues_key,
)
from mqworker.queues.work.throughput import decode_sample
from mqworker.store.command import Command, Reply
from mqworker.store.link.quick_look import QuickLook
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.server_check import INFO_COMMANDS, UNSEEN, view_of

if TYPE_CHECKING:
    from mqworker.store.link.cluster_connection import ClusterConnection
    from mqworker.store.store import Store

script = scripts_of(__package__)


TOTALS = (
    "enqueued",
    "succeeded",
    "retried",
    "buried",
    "reclaimed",
    "cancelled",
    "expired",
    "purged",
    "revived",
    "repaired",
)
"""The counters of a queue, each of what happened since it was made."""

# Ten seconds of them, and the one before.
_SAMPLES_READ = 12
_SWITCHES = ("paused", "limit")
MOST_SHOWN = 200
"""More queues than this are not all worth a line: `status` counts those that hold nothing."""
_ASKED_AT_ONCE = 5_000
_LONG_WAIT_MS = 5_000
_MOST_WAITS = 32
_SEARCHED = 1_000
"""How far into the line an awaited message is searched for; behind that it waits as well, or is elsewhere."""
# A queue that has none of these keys holds nothing.
_SIGNS = ("ready", "urgent", "delayed", "held:", "consumers", "delivered", "dead")
# `mqworker queue pause` notes when; a program's `pause` notes only that.
_EARLIEST_INSTANT_MS = 1_000_000_000_000


class Reader(Protocol):
    """What a view is read with: a Store, or a QuickLook."""

    def send(self, commands: Sequence[Command], key: str | None) -> list[Reply]:
        """Send plain commands that only read, in one round trip."""

    # Any: each result has the type of its call.
    def run_together(self, calls: Sequence[Call[Any]]) -> list[Any]:
        """Scripts in one round trip."""

    def close(self) -> None:
        """Let go of the server."""


class _Names(NamedTuple):
    at_ms: int
    server: ServerView
    queues: list[str]
    nodes: list[str]
    is_partial: bool = False


def read_system(store: Reader, namespace: str, *, is_brief: bool = False) -> SystemView:
    """Everything: for `status`. Of a cluster, what can be had while a part of it is away.

    Briefly: of very many queues, those that hold nothing are only counted.
    """
    names = _cluster_names(store, namespace) if _is_cluster(store) else _server_names(store, namespace)
    idle: dict[str, dict[str, int]] = {}
    if is_brief and len(names.queues) > MOST_SHOWN:
        idle = _read_idle(store, namespace, names.queues)
    queues = read_queues(store, namespace, [name for name in names.queues if name not in idle])
    nodes = _read_nodes(store, namespace, names.nodes)
    return SystemView(
        names.at_ms,
        namespace,
        names.server,
        nodes,
        _in_order(queues),
        len(idle),
        {total: sum(totals[total] for totals in idle.values()) for total in TOTALS} if idle else {},
        names.is_partial,
        _long_waits(store, namespace, nodes),
    )


def _long_waits(store: Reader, namespace: str, nodes: Iterable[NodeView]) -> tuple[WaitView, ...]:
    """The waits that have taken a while, with where the awaited message is: as a rule there is none."""
    found = [wait for node in nodes for wait in node.waits if wait.waited_ms >= _LONG_WAIT_MS]
    looked_at: list[WaitView] = []
    for wait in found[:_MOST_WAITS]:
        keys = WorkQueueKeys.of(namespace, QueueName(wait.queue))
        look = Call(script("find"), keys.shared, (wait.awaited, 0, _SEARCHED), _state)
        with suppress(StoreRefused, StoreUnavailable):  # told as trouble of that queue
            (state,) = store.run_together([look])
            looked_at.append(replace(wait, state=state))
    return tuple(looked_at)


def _state(reply: RawReply) -> str:
    return str(reply[0].decode())


def _server_names(store: Reader, namespace: str) -> _Names:
    queues, nodes = queues_key(namespace), nodes_key(namespace)
    try:
        time, queue_names, node_names, *info = store.send(
            [("TIME",), ("SMEMBERS", queues), ("SMEMBERS", nodes), *INFO_COMMANDS], None
        )
    except StoreRefused as error:
        if error.code == "NOPERM":
            return _names_without_info(store, queues, nodes)
        if not error.is_about_data:
            raise
        time, *info = store.send([("TIME",), *INFO_COMMANDS], None)
        queue_names, node_names = _or_nothing(store, queues), _or_nothing(store, nodes)
    return _Names(_ms(time), view_of([info]), _names(queue_names), _names(node_names))


def _names_without_info(store: Reader, queues: str, nodes: str) -> _Names:
    """For a user who may not ask INFO; who may not even read these raises."""
    time, queue_names, node_names = store.send([("TIME",), ("SMEMBERS", queues), ("SMEMBERS", nodes)], None)
    return _Names(_ms(time), UNSEEN, _names(queue_names), _names(node_names))


def _cluster_names(store: Store, namespace: str) -> _Names:
    """Raises `StoreUnavailable` only when no primary answers."""
    outcomes = _ask_primaries(store)
    answered = [replies for replies in outcomes.values() if not isinstance(replies, MqworkerError)]
    lost = {name: error for name, error in outcomes.items() if isinstance(error, MqworkerError)}
    if not answered:
        raise next(iter(lost.values()))
    troubles = [f"a part of the cluster is away: {error}" for error in lost.values()]
    names: list[list[str]] = []
    for what, key in (("queues", queues_key(namespace)), ("nodes", nodes_key(namespace))):
        try:
            names.append(_names(store.send([("SMEMBERS", key)], key)[0]))
        except MqworkerError as error:
            troubles.append(f"the names of all {what} cannot be read: {error}")
            names.append([])
    server = view_of([replies[1:] for replies in answered])
    server = replace(server, primaries=len(outcomes), troubles=(*troubles, *server.troubles))
    return _Names(_ms(answered[0][0]), server, names[0], names[1], bool(troubles))


def _ask_primaries(store: Store) -> Mapping[str, list[Reply] | MqworkerError]:
    # It is one, as `_is_cluster` has found.
    connection = cast("ClusterConnection", store.connection)
    return connection.attempt_each_primary([("TIME",), *INFO_COMMANDS])


def _in_order(queues: Iterable[QueueView]) -> tuple[QueueView, ...]:
    return tuple(sorted(queues, key=lambda queue: queue.name))


def read_queue_names(store: Reader, namespace: str) -> list[str]:
    """The names of all queues that were ever used, in order."""
    registry = queues_key(namespace)
    return _names(store.send([("SMEMBERS", registry)], registry)[0])


def read_nodes(store: Reader, namespace: str) -> tuple[NodeView, ...]:
    """All nodes that beat."""
    registry = nodes_key(namespace)
    return _read_nodes(store, namespace, _names(store.send([("SMEMBERS", registry)], registry)[0]))


def read_queues(store: Reader, namespace: str, names: Sequence[str]) -> list[QueueView]:
    """These queues, on a single server in one round trip."""
    if not names:
        return []
    beats = _read_beats(store, namespace)
    calls = [survey(WorkQueueKeys.of(namespace, QueueName(name)), beats) for name in names]
    if _is_cluster(store):
        outcomes = store.attempt_each([store.begin([call]) for call in calls])
        return [_view_in(outcome, name) for outcome, name in zip(outcomes, names, strict=True)]
    with suppress(StoreRefused):  # a foreign key in the place of one of ours: look at each on its own
        return store.run_together(calls)
    return [_surveyed(store, call, name) for call, name in zip(calls, names, strict=True)]


def _view_in(outcome: list[QueueView] | MqworkerError, name: str) -> QueueView:
    return QueueView(name, trouble=str(outcome)) if isinstance(outcome, MqworkerError) else outcome[0]


def _read_idle(store: Reader, namespace: str, names: Sequence[str]) -> dict[str, dict[str, int]]:
    """The totals of queues that hold nothing and that nobody waits at, in a round trip for some thousands."""
    idle: dict[str, dict[str, int]] = {}
    for start in range(0, len(names), _ASKED_AT_ONCE):
        some = names[start : start + _ASKED_AT_ONCE]
        commands: list[Command] = []
        for name in some:
            prefix = f"{namespace}:{{{name}}}:"
            commands.append(("EXISTS", *(prefix + sign for sign in _SIGNS)))
            commands.append(("HMGET", f"{prefix}meta", *TOTALS, *_SWITCHES))
        replies: list[Any] = []  # Any: EXISTS answers a number, HMGET texts
        with suppress(MqworkerError):  # a foreign key, or a part that is away: none of these is left out
            replies = _read_all(store, commands)
        for name, count, values in zip(some, replies[::2], replies[1::2], strict=False):
            if count == 0 and not any(values[len(TOTALS) :]):
                numbers = [int(value or 0) if (value or b"0").isdigit() else 0 for value in values]
                idle[name] = dict(zip(TOTALS, numbers, strict=False))
    return idle


def _read_all(store: Reader, commands: Sequence[Command]) -> list[Any]:
    """Commands on many keys, in one round trip to each server; raises the first trouble."""
    replies = _read_each(store, commands)
    for reply in replies:
        if isinstance(reply, MqworkerError):
            raise reply
    return replies


def _read_each(store: Reader, commands: Sequence[Command]) -> list[Any]:
    """The same, with the trouble of each in the place of its reply."""
    if not _is_cluster(store):
        return store.send(commands, None)
    return store.send_each(commands, [str(command[1]) for command in commands])


def _read_beats(store: Reader, namespace: str) -> dict[bytes, int]:
    """When each consumer was heard last, in any queue; on the clock of the server that heard it."""
    keys = beats_keys(namespace) if _is_cluster(store) else beats_keys(namespace)[:1]
    heard: dict[bytes, int] = {}
    with suppress(MqworkerError):  # a shard that is away, a foreign key: then the queues alone tell
        # Any: ZRANGE answers names and scores in turn.
        for beats in _read_all(store, [("ZRANGE", key, 0, -1, "WITHSCORES") for key in keys]):
            for member, beat_ms in zip(beats[::2], beats[1::2], strict=True):
                consumer = member.partition(b" ")[0]
                heard[consumer] = max(int(float(beat_ms)), heard.get(consumer, 0))
    return heard


def survey(keys: WorkQueueKeys, beats: Mapping[bytes, int]) -> Call[QueueView]:
    """One queue in one look; `beats` tells when its consumers were heard elsewhere."""
    return Call(
        script("survey"),
        (*keys.shared, keys.held(None), keys.named("delivered"), keys.named("samples")),
        (_SAMPLES_READ, *TOTALS, *_SWITCHES),
        lambda reply: _queue_view(keys.queue, reply, beats),
    )


def _surveyed(store: Reader, call: Call[QueueView], name: str) -> QueueView:
    try:
        view: QueueView = store.run_together([call])[0]
    except (StoreRefused, StoreUnavailable) as error:
        return QueueView(name, trouble=str(error))
    return view


def _is_cluster(store: Reader) -> TypeGuard[Store]:
    """Whether there are several servers, so that each key must be asked for where it lives."""
    if isinstance(store, QuickLook):
        return False
    from mqworker.store.link.cluster_connection import ClusterConnection  # noqa: PLC0415 - see quick_look.py

    return isinstance(getattr(store, "connection", None), ClusterConnection)


def _or_nothing(store: Reader, registry: str) -> Reply:
    """A registry of another type names nobody; `mqworker doctor` reports it."""
    with suppress(StoreRefused):
        return store.send([("SMEMBERS", registry)], registry)[0]
    return []


def _read_nodes(store: Reader, namespace: str, names: Sequence[str]) -> tuple[NodeView, ...]:
    if not names:
        return ()
    keys = [node_key(namespace, name) for name in names]
    questions: list[tuple[Command, ...]] = [(("GET", key), ("PTTL", key)) for key in keys]
    answers = _read_pairs(store, questions)
    found = [
        decode_node(name, text, ttl_ms if isinstance(ttl_ms, int) else -1)
        for name, (text, ttl_ms) in zip(names, answers, strict=True)
        if isinstance(text, bytes) and text
    ]
    gone = [name for name, (text, _) in zip(names, answers, strict=True) if text is None]
    if gone:
        _forget_nodes(store, namespace, gone)
    return tuple(found)


def _read_pairs(store: Reader, questions: Sequence[Sequence[Command]]) -> list[tuple[Reply, Reply]]:
    """Two answers each; (b"", -1) where there is none: not gone, and nothing but the name is known of it."""
    try:
        flat = _read_each(store, [command for pair in questions for command in pair])
    except StoreRefused as error:  # a foreign key in the place of one of them
        if len(questions) == 1 or not error.is_about_data:
            return [(b"", -1)] * len(questions)
        return [answer for pair in questions for answer in _read_pairs(store, [pair])]
    return [
        (b"", -1) if isinstance(text, MqworkerError) else (text, ttl_ms)
        for text, ttl_ms in zip(flat[::2], flat[1::2], strict=True)
    ]


def _forget_nodes(store: Reader, namespace: str, names: Sequence[str]) -> None:
    """A node that lives after all adds itself again within a second."""
    nodes = nodes_key(namespace)
    with suppress(MqworkerError):  # whoever may only read leaves it to others
        store.send([("SREM", nodes, *names)], nodes)


def _queue_view(name: str, reply: RawReply, beats: Mapping[bytes, int]) -> QueueView:
    now_ms, values, depths, front, consumers, samples, parked = reply
    texts = [None if value is None else value.decode(errors="replace") for value in values]
    totals = {name: _number(text) for name, text in zip(TOTALS, texts, strict=False)}
    paused, limit = texts[len(TOTALS) :]
    paused_at_ms = _number(paused)
    held = tuple(
        ConsumerView(
            consumer.decode(errors="replace"), max(0, now_ms - max(beat_ms, beats.get(consumer, 0))), count
        )
        for consumer, beat_ms, count in zip(consumers[::3], consumers[1::3], consumers[2::3], strict=True)
    )
    ready, delayed, limited, delivered, dead, held_by_nobody = depths
    known = [each for each in map(decode_sample, samples) if each is not None]
    return QueueView(
        name=name,
        ready=max(0, ready),
        delayed=delayed,
        limited=limited,
        leased=held_by_nobody + sum(consumer.held for consumer in held),
        delivered=delivered,
        dead=dead,
        oldest_ms=max(0, now_ms - _number(front[:13].decode(errors="replace"))) if front else None,
        is_paused=paused is not None,
        paused_at_ms=paused_at_ms if paused_at_ms >= _EARLIEST_INSTANT_MS else None,
        limit=_number(limit) or None,
        totals=totals,
        consumers=held,
        throughput=Throughput.over(known, Sample.of(now_ms, totals)),
        parked=_parked(parked),
    )


def _parked(parts: list[bytes]) -> tuple[ParkedView, ...]:
    texts = [part.decode(errors="replace") for part in parts]
    kinds = Counter((task, mark == UNKNOWN_TASK) for task, mark in zip(texts[::2], texts[1::2], strict=True))
    return tuple(
        ParkedView(task, count, is_unknown=is_unknown) for (task, is_unknown), count in kinds.items()
    )


def _number(text: str | None) -> int:
    return 0 if text is None else parse_whole(text.encode()) or 0


def _names(reply: Reply) -> list[str]:
    """What no queue and no node can be called is skipped here; nodes and `mqworker doctor` name it."""
    members = reply if isinstance(reply, list) else []
    return sorted(name for name in map(parse_queue_name, members) if name is not None)


def _ms(time: RawReply) -> int:
    seconds, microseconds = map(int, time)
    return seconds * 1000 + microseconds // 1000


def decode_node(name: str, text: bytes, ttl_ms: int) -> NodeView:
    """The node of this name; of a snapshot that cannot be read only the name and the age remain."""
    facts = _table(_parsed(text))
    children = facts.get("children")
    return NodeView(
        name=name,
        app=_text(facts.get("app")),
        pid=_whole(facts.get("pid")),
        started_at_ms=_whole(facts.get("started_at_ms")),
        is_draining=facts.get("draining") is True,
        problem=_text(facts.get("problem")),
        drain_s=_number_or_none(_table(facts.get("drain")).get("s")),
        drain_why=_text(_table(facts.get("drain")).get("why")),
        age_ms=max(0, SNAPSHOT_TTL_MS - ttl_ms) if ttl_ms >= 0 else 0,
        children=tuple(_child(_table(each)) for each in children) if isinstance(children, list) else (),
    )


def _child(facts: dict[str, Any]) -> ChildView:
    name = _text(facts.get("name")) or "?"
    return ChildView(
        name=name,
        role=_role(name, _text(facts.get("role")) or ""),
        state=_text(facts.get("state")) or "?",
        pid=_whole(facts.get("pid")),
        generation=_whole(facts.get("generation")) or 0,
        restarts=_whole(facts.get("restarts")) or 0,
        last_exit=_text(facts.get("last_exit")),
        retry_in_ms=_whole(facts.get("retry_in_ms")),
        silent_ms=_whole(facts.get("silent_ms")),
        progress=_whole(facts.get("progress")) or 0,
        facts=_table(facts.get("facts")),
    )


def _role(name: str, role: str) -> str:
    """The dispatcher's queues and workers are looked at, so it must be known by whatever it says it is."""
    return "dispatcher" if name == "dispatcher" else role or name


# Any: whatever JSON holds, from whoever wrote it.


def _parsed(text: bytes) -> Any:  # noqa: ANN401 - foreign data enters here
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number_or_none(value: object) -> float | None:
    return None if _whole(value) is None else float(str(value))


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST_WHOLE:
        return None  # NaN is no more than any number either
    return int(value)
