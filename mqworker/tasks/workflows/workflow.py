"""Workflows: chains, groups and chords of calls, as values. `enqueue` stores the plan, brokers carry it on.

The plan is laid down in one hash of its own before anything runs. The start, like every end of a member, is
an entry in the outbox of a queue (outbox.py): so a workflow is begun and goes on exactly once,
whoever is killed in between. docs/decisions/0005-workflows-by-outbox.md says why.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, assert_never, overload

from mqworker.errors import InvalidArgument
from mqworker.model.assembled_call import Origin, Source, join_of
from mqworker.model.names import MessageId, QueueName, shown
from mqworker.model.workflow_graph import Branched, CallNode, Graph, Parallel, Part, Series, lay_out
from mqworker.queues.work.keys import workflow_key, workflows_key
from mqworker.tasks.connections import Connections
from mqworker.tasks.ids import next_id
from mqworker.tasks.options import DEFAULT_QUEUE, Seconds, milliseconds
from mqworker.tasks.signature import Signature, Step
from mqworker.tasks.workflows.job import WorkflowJob
from mqworker.tasks.workflows.outcome import member_id
from mqworker.tasks.workflows.plan import LONGEST_RUN_MS, plan_of_graph

OnFailure = Literal["stop", "collect"]

A = TypeVar("A")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

DAY_S = 24 * 3600
FIELDS_AT_ONCE = 500
MOST_LISTED = 1_000
"""Ids of the newest workflows, for whoever looks for one without knowing its id."""


@dataclass(frozen=True, slots=True)
class Workflow(Step[R_co]):
    """Calls that follow from one another. Made by `chain`, `group`, `chord` and `|`; may be used often."""

    shape: Part[Signature[Any]]

    def as_part(self) -> Part[Signature[Any]]:
        """All its calls."""
        return self.shape

    def enqueue(self, *, ttl: Seconds = DAY_S) -> WorkflowJob[R_co]:
        """Store the workflow; workers and broker carry it on. The arguments are checked here.

        Its outcome, and those of its members, are kept for `ttl` seconds after its end.
        """
        kept_ms = milliseconds("ttl", ttl)
        graph = lay_out(self.shape)
        connections = _connections_of(graph)
        workflow = next_id()
        first = next((node.call.plan.queue for node in graph.calls.values()), DEFAULT_QUEUE)
        if connections.tracer is None:
            _start(connections, workflow, graph, kept_ms=kept_ms, first=first)
        else:
            count = len(graph.calls)
            with connections.tracer.sending(first, count=count, workflow=workflow) as sending:
                _start(connections, workflow, graph, kept_ms=kept_ms, first=first, headers=sending.headers)
        plan = plan_of_graph(graph)
        return WorkflowJob(workflow, connections, lambda: plan)

    async def aenqueue(self, *, ttl: Seconds = DAY_S) -> WorkflowJob[R_co]:
        """`enqueue` for asyncio."""
        return await asyncio.to_thread(self.enqueue, ttl=ttl)


@overload
def chain(last: Step[R], /, *, on_failure: OnFailure = "stop") -> Workflow[R]: ...
@overload
def chain(first: Step[Any], last: Step[R], /, *, on_failure: OnFailure = "stop") -> Workflow[R]: ...
@overload
def chain(
    first: Step[Any], second: Step[Any], last: Step[R], /, *, on_failure: OnFailure = "stop"
) -> Workflow[R]: ...
@overload
def chain(
    first: Step[Any], second: Step[Any], third: Step[Any], last: Step[R], /, *, on_failure: OnFailure = "stop"
) -> Workflow[R]: ...
@overload
def chain(*steps: Step[Any], on_failure: OnFailure = "stop") -> Workflow[Any]: ...
def chain(*steps: Step[Any], on_failure: OnFailure = "stop") -> Workflow[Any]:
    """One step after the other; the outcome of each is the first argument of the next.

    Of `.si(...)` it is not: such a call takes no input. The result is that of the last step.
    """
    parts = tuple(itertools.chain.from_iterable(_links(_part(step)) for step in steps))
    return Workflow(Series(parts, collects=_collects(on_failure)))


@overload
def group(members: Iterable[Step[A]], /, *, on_failure: OnFailure = "stop") -> Workflow[list[A]]: ...
@overload
def group(*members: Step[A], on_failure: OnFailure = "stop") -> Workflow[list[A]]: ...
def group(*members: Any, on_failure: OnFailure = "stop") -> Workflow[Any]:  # Any: the overloads say what
    """All members at once; the result is the list of theirs, in order.

    `on_failure="stop"` fails the workflow with the first member that is given up; "collect" puts a
    `MemberFailure` in its place and goes on. Members that are in line already run in any case.
    """
    if len(members) == 1 and not isinstance(members[0], Step):
        members = tuple(members[0])
    return Workflow(Parallel(tuple(_part(each) for each in members), collects=_collects(on_failure)))


def chord(
    members: Workflow[list[A]] | Iterable[Step[A]], callback: Step[R], *, on_failure: OnFailure = "stop"
) -> Workflow[R]:
    """A group, and a callback that runs once with the list of its results.

    `on_failure` is the group's: with "collect" the callback runs in any case, with failures as values.
    """
    header = members if isinstance(members, Workflow) else group(members)
    if not isinstance(header.shape, Parallel):
        raise InvalidArgument(
            "the first argument of a chord is not a group; accepted are group(...) or calls"
        )
    collects = header.shape.collects or _collects(on_failure)
    collecting: Workflow[list[A]] = Workflow(replace(header.shape, collects=collects))
    return chain(collecting, callback)


def branched(step: Step[R], links: tuple[Step[Any], ...], on_error: tuple[Step[Any], ...]) -> Workflow[R]:
    """What `step.link(...)` and `step.on_error(...)` give."""
    if not links and not on_error:
        raise InvalidArgument("no call is given; accepted are task.s(...), chain, group, chord and graph")
    return Workflow(Branched(_part(step), tuple(map(_part, links)), tuple(map(_part, on_error))))


def _part(step: object) -> Part[Signature[Any]]:
    if isinstance(step, Step):
        return step.as_part()
    raise InvalidArgument(
        f"{shown(step)} is not a step; accepted are task.s(...), chain, group, chord and graph"
    )


def _links(part: Part[Signature[Any]]) -> Iterable[Part[Signature[Any]]]:
    """A chain in a chain is one chain, unless it treats failures in its own way."""
    return part.parts if isinstance(part, Series) and not part.collects else (part,)


def _collects(on_failure: OnFailure) -> bool:
    if on_failure not in ("stop", "collect"):
        raise InvalidArgument(f'on_failure is {shown(on_failure)}; accepted are "stop" and "collect"')
    return on_failure == "collect"


def _connections_of(graph: Graph[Signature[Any]]) -> Connections:
    for node in graph.calls.values():
        return node.call.call.connections
    raise InvalidArgument(
        "a workflow without any call cannot be enqueued; accepted is one with a task.s(...)"
    )


def _start(
    connections: Connections,
    workflow: MessageId,
    graph: Graph[Signature[Any]],
    *,
    kept_ms: int,
    first: QueueName,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Lay down the plan, and say that it may begin; each call carries these headers."""
    fields = graph.fields() | {"kept_ms": str(kept_ms)} | dict(_calls(graph, workflow, headers))
    _store(connections, workflow, fields)
    _list(connections, workflow)
    sender = connections.sender(first)
    sender.register()
    keys = sender.work.calls.keys
    # Storing the start twice is storing it once: each call of the workflow has an id of its own.
    start = ("HSET", keys.named("outbox"), f"{workflow}~start", "")
    sender.work.store.send([start, ("SPUBLISH", keys.calls_for_broker, "outbox")], keys.meta)


def _calls(
    graph: Graph[Signature[Any]], workflow: MessageId, headers: Mapping[str, str] | None
) -> Iterator[tuple[str, str]]:
    """The calls as they are kept: a template each, with the node that its input comes from."""
    sources: dict[int, Source] = {}
    for node, call in graph.calls.items():
        origin = Origin(member_id(workflow, node), source=_source_of(graph, call, sources))
        inputs = graph.count_of_inputs(call)
        template = call.call.template(workflow, inputs=inputs, headers=headers, origin=origin)
        takes = {} if call.takes == "outcome" else {"takes": call.takes, "places": inputs}
        yield f"t{node}", json.dumps(template.as_fields() | takes | {"input_from": call.input_from})


def _source_of(
    graph: Graph[Signature[Any]], call: CallNode[Signature[Any]], known: dict[int, Source]
) -> Source:
    if call.input_from is None:
        return None
    match call.takes:
        case "outcome":
            return _source(graph, call.input_from, known)
        case "each":
            return ["each", [_source(graph, each, known) for each in graph.inputs_by_join[call.input_from]]]
        case "failure":
            return ["failure"]
        case _:
            assert_never(call.takes)


def _source(graph: Graph[Signature[Any]], node: int, known: dict[int, Source]) -> Source:
    """Whose results make the outcome of a node: what a sealed call says about its input."""
    if node not in known:
        call = graph.calls.get(node)
        if call is None:
            known[node] = join_of([_source(graph, each, known) for each in graph.inputs_by_join[node]])
        else:
            known[node] = ["call", call.call.plan.queue, node, call.collects]
    return known[node]


def _store(connections: Connections, workflow: MessageId, fields: dict[str, str]) -> None:
    key = workflow_key(connections.namespace, workflow)
    pairs = iter(fields.items())
    while some := list(itertools.islice(pairs, FIELDS_AT_ONCE)):
        arguments = itertools.chain.from_iterable(some)
        # Writing the same fields again changes nothing, and nobody looks at them before the start.
        connections.store.send([("HSET", key, *arguments), ("PEXPIRE", key, LONGEST_RUN_MS)], key)


def _list(connections: Connections, workflow: MessageId) -> None:
    key = workflows_key(connections.namespace)
    # Sent twice it stands there twice, and whoever reads the list leaves that out.
    connections.store.send([("LPUSH", key, workflow), ("LTRIM", key, 0, MOST_LISTED - 1)], key)
