"""Sentry: errors, retries and crashes of tasks, spans of its queue view, and check-ins of schedules.

Call `install(app)` where the app is made, after `sentry_sdk.init`. Arguments are sent only if allowed, and
the values of secret arguments never, wherever they stand.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import sentry_sdk
from sentry_sdk.crons import MonitorStatus, capture_checkin

from mqworker.model.clock import Clock, SystemClock
from mqworker.model.names import TaskName
from mqworker.model.schedule import Cron, Timing
from mqworker.redaction import MASK
from mqworker.tasks.app import App
from mqworker.tasks.context import Context
from mqworker.tasks.hooks import OutgoingCall
from mqworker.tasks.secret import NO_SECRETS, SecretArguments, without_values

if TYPE_CHECKING:
    from sentry_sdk.tracing import Span
    from sentry_sdk.types import Event, Hint

FLUSH_S: Final = 2.0
"""How long a worker that ends waits for events that are still to be sent."""
_MOST_OPEN = 10_000
_SLUG_CHARACTERS: Final = 50
_DEEPEST: Final = 20
"""Of an event; the SDK itself cuts far above that."""


def install(
    app: App, *, arguments: bool = False, monitors: bool = True, clock: Clock | None = None
) -> SentryHooks:
    """Report what happens to the app's tasks, with the client that `sentry_sdk.init` made.

    `arguments` lets the arguments of a call, and the variables of its frames, out of the house. `monitors`
    makes a monitor of each schedule.
    """
    hooks = SentryHooks(app, arguments=arguments, monitors=monitors, clock=clock or SystemClock())
    app.hooks.before_enqueue(hooks.enqueueing)
    app.hooks.on_start(hooks.starting)
    app.hooks.on_success(hooks.succeeding)
    app.hooks.on_failure(hooks.failing)
    app.hooks.on_retry(hooks.retrying)
    app.hooks.on_crash(hooks.crashing)
    app.hooks.on_worker_stop(lambda: sentry_sdk.flush(timeout=FLUSH_S))
    return hooks


class SentryHooks:
    """What is told to Sentry, and when."""

    def __init__(self, app: App, *, arguments: bool, monitors: bool, clock: Clock) -> None:
        self._app = app
        self._sends_arguments = arguments
        self._has_monitors = monitors
        self._now_ms = clock.now_ms
        self._open: dict[tuple[str, int], Span] = {}
        """Transactions of runs that have not ended, by queue and fence."""

    def enqueueing(self, call: OutgoingCall) -> None:
        """A `queue.publish` span, and its trace in the headers."""
        if sentry_sdk.get_current_span() is None:
            return
        with sentry_sdk.start_span(op="queue.publish", name=call.queue) as span:
            span.set_data("messaging.system", "mqworker")
            span.set_data("messaging.destination.name", call.queue)
            for name, text in span.iter_headers():
                call.headers[name] = text

    def starting(self, ctx: Context) -> None:
        """A `queue.process` transaction begins; so does the check-in of a schedule."""
        transaction = sentry_sdk.continue_trace(
            dict(ctx.headers), op="queue.process", name=ctx.task, source="task"
        )
        span = sentry_sdk.start_transaction(transaction)
        for name, value in self._queue_fields(ctx).items():
            span.set_data(name, value)
        if len(self._open) < _MOST_OPEN:
            self._open[ctx.queue, ctx.fence] = span
        self._check_in(ctx, MonitorStatus.IN_PROGRESS)

    # Any: what the task returned.
    def succeeding(self, ctx: Context, _result: Any) -> None:  # noqa: ANN401 - see above
        """The run ended well."""
        self._end(ctx, "ok")
        self._check_in(ctx, MonitorStatus.OK)

    def failing(self, ctx: Context, error: BaseException) -> None:
        """A message was given up."""
        self._capture(ctx, error, "error")
        self._end(ctx, "internal_error")
        self._check_in(ctx, MonitorStatus.ERROR)

    def retrying(self, ctx: Context, error: BaseException, _in_ms: int) -> None:
        """A run failed and is tried again."""
        self._capture(ctx, error, "warning")
        self._end(ctx, "internal_error")

    def crashing(self, ctx: Context, error: BaseException) -> None:
        """A worker died over a message, which is run again."""
        self._capture(ctx, error, "error")
        sentry_sdk.flush(timeout=FLUSH_S)  # the next to run it may be this worker

    def _capture(self, ctx: Context, error: BaseException, level: Literal["error", "warning"]) -> None:
        with sentry_sdk.new_scope() as scope:
            scope.set_level(level)
            scope.set_transaction_name(ctx.task, source="task")
            for name, value in (("task", ctx.task), ("queue", ctx.queue), ("attempt", ctx.attempt)):
                scope.set_tag(f"mqworker.{name}", value)
            facts = {"task": ctx.task, "id": ctx.id, "attempt": ctx.attempt, "failures": ctx.failures}
            scope.set_context("mqworker", {**facts, **self._queue_fields(ctx), **self._arguments(ctx)})
            if not self._sends_arguments:
                scope.add_event_processor(_without_variables)
            values = self._secrets_of(ctx.task).values(*ctx.arguments())
            scope.add_event_processor(lambda event, _hint: _without_secrets(event, values))
            scope.capture_exception(error)

    def _end(self, ctx: Context, status: str) -> None:
        span = self._open.pop((ctx.queue, ctx.fence), None)
        if span is not None:
            span.set_status(status)
            span.finish()

    def _queue_fields(self, ctx: Context) -> dict[str, Any]:
        """As Sentry's view of queues names them."""
        return {
            "messaging.system": "mqworker",
            "messaging.message.id": ctx.id,
            "messaging.destination.name": ctx.queue,
            "messaging.message.retry.count": ctx.attempt - 1,
            "messaging.message.receive.latency": max(0, self._now_ms() - ctx.enqueued_at_ms),
        }

    def _arguments(self, ctx: Context) -> dict[str, Any]:
        if not self._sends_arguments:
            return {}
        secrets, (args, kwargs) = self._secrets_of(ctx.task), ctx.arguments()
        shown_args = [MASK if secrets.is_at(place) else value for place, value in enumerate(args)]
        shown_kwargs = {name: MASK if secrets.is_named(name) else value for name, value in kwargs.items()}
        return {"args": repr(shown_args), "kwargs": repr(shown_kwargs)}

    def _secrets_of(self, task: str) -> SecretArguments:
        definition = self._app.registry.get(TaskName(task))
        return NO_SECRETS if definition is None else definition.binding.secrets

    def _check_in(self, ctx: Context, status: str) -> None:
        """A tick is named `app/schedule@tick`, the same for all attempts: so is its check-in."""
        app, _, rest = ctx.id.partition("/")
        schedule = (
            self._app.schedules.declared.get(rest.rpartition("@")[0]) if app == self._app.name else None
        )
        if schedule is None or not self._has_monitors:
            return
        capture_checkin(
            monitor_slug=f"{app}-{schedule.name}".replace(".", "-").lower()[:_SLUG_CHARACTERS],
            check_in_id=uuid.uuid5(uuid.NAMESPACE_OID, ctx.id).hex,
            status=status,
            monitor_config={"schedule": _schedule(schedule.timing), "timezone": _timezone(schedule.timing)},
        )


def _without_variables(event: Event, _hint: Hint) -> Event | None:
    """The frames of a task's own code hold its arguments."""
    # Any: an event is a deep map, which the SDK does not type to its end.
    exceptions: Any = (event.get("exception") or {}).get("values") or []
    for each in exceptions:
        for frame in (each.get("stacktrace") or {}).get("frames") or []:
            frame.pop("vars", None)
    return event


def _without_secrets(event: Event, values: Sequence[str]) -> Event:
    """Messages of errors and variables of frames hold them as well."""
    masked: Event = _masked(event, values, _DEEPEST) if values else event
    return masked


# Any: an event is a deep map, which the SDK does not type to its end.
def _masked(part: Any, values: Sequence[str], depth: int) -> Any:  # noqa: ANN401 - see above
    if isinstance(part, str):
        return without_values(part, values)
    if not depth:
        return MASK
    if isinstance(part, Mapping):
        return {name: _masked(each, values, depth - 1) for name, each in part.items()}
    if isinstance(part, list | tuple):
        return [_masked(each, values, depth - 1) for each in part]
    return part


def _schedule(timing: Timing) -> Any:  # noqa: ANN401 - a typed dict of the SDK, which has no public name
    if isinstance(timing, Cron):
        return {"type": "crontab", "value": timing.line}
    minutes = max(1, round(timedelta(milliseconds=timing.interval_ms) / timedelta(minutes=1)))
    return {"type": "interval", "value": minutes, "unit": "minute"}


def _timezone(timing: Timing) -> str:
    return timing.timezone if isinstance(timing, Cron) else "UTC"
