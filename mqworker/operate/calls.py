"""Calling tasks by name from outside, for programs in any language: checked against what is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown
from mqworker.model.schedule import CatchUp
from mqworker.model.trace_context import TRACEPARENT, context_in
from mqworker.settings import Settings
from mqworker.tasks.app import App
from mqworker.tasks.job import Job
from mqworker.tasks.published_tasks import PublishedTask, named
from mqworker.tasks.remote_tasks import RemoteTask, read_published_tasks

OPTIONS = {
    "delay": (int, float),
    "deadline": (int, float),
    "priority": (int,),
    "id": (str,),
    "headers": (dict,),
}
"""What may be said with a call, as in `task.using(...)`; seconds from now for the first two."""


@dataclass(frozen=True, slots=True)
class NamedCall:
    """A call as somebody wrote it."""

    task: str
    # Any: what JSON can hold.
    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


# Any: what JSON can hold; the types are checked here.
def call_of(task: str, fields: Mapping[str, Any]) -> NamedCall:
    """A call out of JSON: args, kwargs and options; raises InvalidArgument that names what does not fit."""
    unknown = sorted(fields.keys() - {"args", "kwargs", *OPTIONS})
    if unknown:
        accepted = ", ".join(["args", "kwargs", *OPTIONS])
        raise InvalidArgument(f"the body has {shown(unknown[0])}; accepted are {accepted}")
    args, kwargs = fields.get("args", []), fields.get("kwargs", {})
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise InvalidArgument("args is a list and kwargs an object; accepted are both, one or none of them")
    options = {name: fields[name] for name in OPTIONS if fields.get(name) is not None}
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, OPTIONS[name]):
            kinds = " or ".join(kind.__name__ for kind in OPTIONS[name])
            raise InvalidArgument(f"{name} is {shown(value)}; accepted is {kinds}")
    return NamedCall(task, args, kwargs, options)


# Any: as above.
def with_trace(fields: dict[str, Any], request_headers: Mapping[str, str]) -> dict[str, Any]:
    """With the trace context of a request in the headers of its call, unless the call names one."""
    context, own = context_in(request_headers), fields.get("headers")
    if context is None or not isinstance(own, dict | None) or TRACEPARENT in (own or {}):
        return fields
    return {**fields, "headers": {**(own or {}), **context.headers()}}


class Caller:
    """Calls tasks on one server, without their code."""

    def __init__(self, settings: Settings) -> None:
        self._app = App("mqworker-console", settings=settings)

    def tasks(self) -> list[PublishedTask]:
        """All that were published, by name."""
        found = read_published_tasks(self._app.connections.store, self._app.connections.namespace)
        return [found[name] for name in sorted(found)]

    def enqueue(self, call: NamedCall) -> Job[Any]:
        """Store the call; raises UnknownTask for one that nobody published."""
        published = named({task.name: task for task in self.tasks()}, call.task)
        task = RemoteTask(published, self._app.connections, self._app.hooks)
        return (task.using(**call.options) if call.options else task).enqueue(*call.args, **call.kwargs)

    def schedule(
        self,
        name: str,
        call: NamedCall,
        *,
        cron: str | None,
        every: float | None,
        timezone: str,
        jitter: float,
        catch_up: str,
    ) -> None:
        """Put the call under a schedule; raises UnknownTask for one that nobody published."""
        published = named({task.name: task for task in self.tasks()}, call.task)
        task = RemoteTask(published, self._app.connections, self._app.hooks)
        self._app.schedules.put(
            name,
            task.si(*call.args, **call.kwargs),
            cron=cron,
            every=every,
            timezone=timezone,
            jitter=jitter,
            catch_up=cast("CatchUp", catch_up),  # checked there
        )

    def close(self) -> None:
        """Let go of the server."""
        self._app.close()
