"""Published tasks: what somebody without the application must know to call one of its tasks. JSON in Redis.

Workers publish them when they start, all tasks of an app as one value. A caller makes a `Task` of what it
reads: its calls are checked, limited and kept unique like those of the application itself. A default that
JSON cannot hold is not published; where the key of a limit needs it, the caller is asked for the argument.
"""

from __future__ import annotations

import difflib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from mqworker.errors import InvalidArgument, InvalidMessage, NotSupported, UnknownTask
from mqworker.model.batch import Batch
from mqworker.model.breaker import Breaker
from mqworker.model.fair import Fair
from mqworker.model.names import queue_name, shown, task_name
from mqworker.model.rate import Rate
from mqworker.model.running import MaxRunning
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.model.unique import Unique
from mqworker.queues.work.keys import tasks_key
from mqworker.redaction import is_secret_name
from mqworker.tasks.connections import Connections
from mqworker.tasks.options import TaskOptions
from mqworker.tasks.plain_types import check_plain
from mqworker.tasks.registry import Registry, TaskDefinition
from mqworker.tasks.secret import SecretArguments, is_secret

VERSION = 1
_KIND_BY_NAME = {
    kind.name: kind
    for kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.KEYWORD_ONLY,
        inspect.Parameter.VAR_KEYWORD,
    )
}
MOST_TASKS = 2_000
"""Of one app: the others can be called by name all the same, unchecked."""
_LIMITS = JsonLimits(most_bytes=16 * 1024 * 1024, deepest=12, most_nodes=1_000_000)
_LONGEST_ANNOTATION = 200
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, InvalidArgument, InvalidMessage)


class TaskSource(Protocol):
    """What an app is to whoever publishes its tasks."""

    @property
    def name(self) -> str:
        """Under which they are published."""

    @property
    def connections(self) -> Connections:
        """Where to."""

    @property
    def registry(self) -> Registry:
        """Its tasks."""


class _NotPublished:
    """In the place of a default that was not published."""

    def __repr__(self) -> str:
        return "..."


NOT_PUBLISHED = _NotPublished()


@dataclass(frozen=True, slots=True)
class PublishedTask:
    """One task, as it was published."""

    app: str
    definition: TaskDefinition
    # Any: as they stand in JSON; for whoever shows them.
    parameters: tuple[dict[str, Any], ...]
    model: str | None = None
    """What its queue is, where it is not a work queue."""
    queue_running: int | None = None
    """How many messages of its queue run at once, where that is limited."""

    @property
    def name(self) -> str:
        """Under which it is called."""
        return self.definition.name

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise what is wrong with a call: arguments, their plain types, a default that is needed."""
        if self.model is not None:
            raise NotSupported(
                f"{self.name} goes through queue {self.definition.options.queue}, which is {self.model}; "
                "accepted are tasks of work queues"
            )
        given = self.definition.binding.as_given(args, kwargs)
        annotation_by_name = {each["name"]: str(each.get("type", "")) for each in self.parameters}
        for position, (name, value) in enumerate(given.items()):
            if position == 0 and value is None:
                continue  # holds the place of a workflow's input, which only its broker knows
            check_plain(f"{self.name}: {name}", annotation_by_name.get(name, ""), value)
        options = self.definition.options
        if options.is_limited or options.unique is not None:
            missing = [
                name
                for name, value in self.definition.binding.by_name(args, kwargs).items()
                if value is NOT_PUBLISHED and _is_needed(name, options)
            ]
            if missing:
                raise InvalidArgument(
                    f"{self.name}: {', '.join(missing)} decides about its limits or its uniqueness, and "
                    "the default is not known here; accepted are calls that give it"
                )


def publish_tasks(app: TaskSource) -> int:
    """Tell everybody how the tasks of an app are called, in place of what was told before; how many."""
    store, key = app.connections.store, tasks_key(app.connections.namespace)
    tasks = [_fields(each, app) for each in list(app.registry)[:MOST_TASKS]]
    text = json.dumps({"version": VERSION, "tasks": tasks}, separators=(",", ":"))
    command = ("HSET", key, app.name, text) if tasks else ("HDEL", key, app.name)
    # Once, without patience: the caller has other things to do while Redis is away.
    store.connection.execute([command], key)
    return len(tasks)


def decode_published_tasks(published: Mapping[bytes, bytes]) -> dict[str, PublishedTask]:
    """All tasks of all apps by name; what cannot be read is as if it were not there."""
    found: dict[str, PublishedTask] = {}
    for app, text in published.items():
        found |= {task.name: task for task in _decoded(app.decode(errors="replace"), text)}
    return found


def decode_secrets(text: bytes) -> dict[str, SecretArguments]:
    """The secret arguments of the tasks of one app; tasks without any are left out."""
    found: dict[str, SecretArguments] = {}
    try:
        for task in read_json(text, _LIMITS)["tasks"]:
            secrets = SecretArguments.of(
                (
                    str(each["name"]),
                    str(each["kind"]),
                    bool(each.get("secret")) or is_secret_name(each["name"]),
                )
                for each in task["parameters"]
            )
            if secrets.names:
                found[str(task["name"])] = secrets
    except _UNREADABLE:
        return found
    return found


def named(tasks: Mapping[str, PublishedTask], name: str) -> PublishedTask:
    """The task of this name; raises UnknownTask with those that come close."""
    found = tasks.get(task_name(name))
    if found is None:
        close = difflib.get_close_matches(name, tasks, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "workers publish their tasks when they start"
        )
        raise UnknownTask(f"no task is published as {shown(name)}; {hint}")
    return found


def _fields(task: TaskDefinition, app: TaskSource) -> dict[str, Any]:
    options = task.options
    model = app.connections.models.get(options.queue)
    fields = {
        "name": task.name,
        "queue": options.queue,
        "parameters": [_parameter(each) for each in task.binding.own],
        "async": task.is_async,
        "priority": options.priority or None,
        "deadline_ms": options.deadline_ms,
        "max_crashes": options.max_crashes,
        "result_ttl_ms": options.result_ttl_ms,
        "unique": None if options.unique is None else asdict(options.unique),
        "rates": [[each.count, each.period_ms, each.burst, each.key, each.cost] for each in options.rates]
        or None,
        "batch": None if options.batch is None else asdict(options.batch),
        "running": [[each.count, each.key, each.name] for each in options.running] or None,
        "breaker": None if options.breaker is None else asdict(options.breaker),
        "queue_running": app.connections.running_by_queue.get(options.queue),
        "fair": None if options.fair is None else [options.fair.key, dict(options.fair.weights)],
        "model": None if model is None else model.title,
    }
    # max_crashes None says: for ever.
    return {name: value for name, value in fields.items() if value is not None or name == "max_crashes"}


def _parameter(parameter: inspect.Parameter) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": parameter.name, "kind": parameter.kind.name}
    if parameter.annotation is not parameter.empty:
        hint = parameter.annotation
        text = hint if isinstance(hint, str) else inspect.formatannotation(hint)
        fields["type"] = text[:_LONGEST_ANNOTATION]
    if is_secret(parameter):
        fields["secret"] = True
    if parameter.default is not parameter.empty:
        fields["required"] = False
        if not is_secret(parameter) and isinstance(parameter.default, str | int | float | bool | None):
            fields["default"] = parameter.default
    return fields


def _decoded(app: str, text: bytes) -> Iterator[PublishedTask]:
    try:
        document = read_json(text, _LIMITS)
        tasks = document["tasks"] if document["version"] == VERSION else []
    except _UNREADABLE:
        return
    for fields in tasks if isinstance(tasks, list) else []:
        try:
            yield _task(app, fields)
        except _UNREADABLE:
            continue


# Any: JSON; what is taken out of it is checked by the values it goes into.
def _task(app: str, fields: Mapping[str, Any]) -> PublishedTask:
    unique, fair = fields.get("unique"), fields.get("fair")
    options = TaskOptions(
        queue=queue_name(fields["queue"]),
        rates=tuple(_rate(*each) for each in fields.get("rates", ())),
        running=tuple(MaxRunning(*each) for each in fields.get("running", ())),
        breaker=None if fields.get("breaker") is None else Breaker(**fields["breaker"]),
        batch=None if fields.get("batch") is None else Batch(**fields["batch"]),
        deadline_ms=fields.get("deadline_ms"),
        unique=None if unique is None else Unique(**unique),
        priority=int(fields.get("priority", 0)),
        result_ttl_ms=fields.get("result_ttl_ms"),
        max_crashes=fields["max_crashes"],
        fair=None if fair is None else Fair(fair[0], fair[1]),
    )
    parameters = tuple(dict(each) for each in fields["parameters"])
    definition = TaskDefinition(fields["name"], _stand_in(fields["name"], parameters), options)
    most = fields.get("queue_running")
    queue_running = None if most is None else MaxRunning(most).count
    return PublishedTask(app, definition, parameters, fields.get("model"), queue_running)


def _rate(count: int, period_ms: int, burst: int, key: str | None, cost: str | None = None) -> Rate:
    seconds = period_ms // 1000
    return Rate(f"{count}/{seconds}s", key=key, burst=burst, cost=cost)


def _stand_in(name: str, parameters: Sequence[Mapping[str, Any]]) -> Callable[..., Any]:
    """A function with the signature of the task, and without its code."""

    def call(*_args: object, **_kwargs: object) -> None:
        raise NotSupported(f"the code of {name} is not here; accepted are enqueue and aenqueue")

    call.__signature__ = inspect.Signature([_as_parameter(each) for each in parameters])  # type: ignore[attr-defined]
    return call


def _as_parameter(fields: Mapping[str, Any]) -> inspect.Parameter:
    default = (
        inspect.Parameter.empty if fields.get("required", True) else fields.get("default", NOT_PUBLISHED)
    )
    annotation = str(fields["type"]) if "type" in fields else inspect.Parameter.empty
    kind = _KIND_BY_NAME[fields["kind"]]
    return inspect.Parameter(fields["name"], kind, default=default, annotation=annotation)


def _is_needed(name: str, options: TaskOptions) -> bool:
    """Whether a key is made of this argument; a uniqueness without a key is made of all."""
    keys = [*options.limited_keys, *([options.unique.key or ""] if options.unique is not None else [])]
    return any(f"{{{name}}}" in key or not key for key in keys)
