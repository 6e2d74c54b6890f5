"""Options of tasks and of single calls, checked once where they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from mqworker.errors import InvalidArgument
from mqworker.model.batch import Batch
from mqworker.model.breaker import Breaker
from mqworker.model.envelope import CallOptions
from mqworker.model.fair import Fair
from mqworker.model.instant import After, At, Instant
from mqworker.model.names import (
    HIGHEST_PRIORITY,
    LONGEST_HORIZON_MS,
    MOST_CRASHES,
    MOST_LOSSES,
    MessageId,
    QueueName,
    message_id,
    queue_name,
    shown,
    tag_names,
    whole_number,
)
from mqworker.model.rate import Rate
from mqworker.model.retry_policy import NO_RETRY, USUAL_POLICY, Retry
from mqworker.model.running import MaxRunning, MaxRunningOption, max_running_option
from mqworker.model.unique import Unique

DEFAULT_QUEUE = QueueName("default")

AS_SET = -1
"""Stands for what the settings say, which are not read yet when tasks are defined."""

DeliveryGuarantee = Literal["at_least_once", "at_most_once"]
Seconds: TypeAlias = "float | timedelta"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """What a task says about all its calls; durations in milliseconds, everything checked."""

    queue: QueueName = DEFAULT_QUEUE
    retry: Retry = USUAL_POLICY
    timeout_ms: int | None = None
    hard_timeout_ms: int | None = None
    rates: tuple[Rate, ...] = ()
    deadline_ms: int | None = None
    delivery: DeliveryGuarantee = "at_least_once"
    unique: Unique | None = None
    priority: int = 0
    result_ttl_ms: int | None = None
    """None: as the setting `result_ttl_s` says; 0: results are not kept."""
    max_crashes: int | None = AS_SET
    max_losses: int | None = AS_SET
    fair: Fair | None = None
    tags: tuple[str, ...] = ()
    running: tuple[MaxRunning, ...] = ()
    breaker: Breaker | None = None
    batch: Batch | None = None

    @property
    def is_limited(self) -> bool:
        """Whether its messages wait for a permit, or for the turn of their tenant."""
        return bool(self.rates or self.running or self.breaker) or self.fair is not None

    @property
    def limited_keys(self) -> list[str]:
        """Templates of arguments on which it depends for what a message waits, and with whom it runs."""
        keyed: list[Rate | MaxRunning | Breaker] = [*self.rates, *self.running]
        keyed += [] if self.breaker is None else [self.breaker]
        keys = [each.key for each in keyed if each.key is not None]
        keys += [self.batch.by] if self.batch is not None and self.batch.by is not None else []
        return keys if self.fair is None else [*keys, self.fair.key]


def task_options(
    *,
    queue: str = DEFAULT_QUEUE,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    hard_timeout: Seconds | None = None,
    rate: Rate | str | Iterable[Rate] = (),
    deadline: Seconds | None = None,
    delivery: DeliveryGuarantee = "at_least_once",
    unique: Unique | str | bool | None = None,
    priority: int = 0,
    result_ttl: Seconds | None = None,
    max_crashes: int | None = AS_SET,
    max_losses: int | None = AS_SET,
    fair_by: Fair | str | None = None,
    tags: Iterable[str] = (),
    max_running: MaxRunningOption | None = None,
    breaker: Breaker | None = None,
    batch: Batch | None = None,
) -> TaskOptions:
    """Options as users write them, in seconds, as a checked value.

    `retry` may be a number of retries, 0 for none. `hard_timeout` kills the worker; without one it follows
    the soft time-out by ten seconds. `max_crashes` is by default as the setting of that name says; None never
    gives a message up for killing its worker. `max_losses` is the same for nodes that vanish: so often a
    message may be lost with its node before it runs alone, and is given up if that takes the node with it,
    too. `tags` are words to find its calls by. `fair_by="{tenant}"` lets tenants take turns in a queue,
    however many calls one of them has waiting; such tasks have a queue of their own, without others in it.
    `max_running=4` lets so many calls run at once, over all nodes; `max_running={"{tenant}": 2}` so many of
    each tenant; `max_running=[4, {"{tenant}": 2}]` both. `breaker=Breaker("{tenant}")` closes a tenant whose
    calls fail, for a while. `batch=Batch(size=500, wait=0.2)` gives the function many calls at once: it takes
    a list, one item for each.
    """
    if delivery not in ("at_least_once", "at_most_once"):
        raise InvalidArgument(
            f'delivery is {shown(delivery)}; accepted are "at_least_once" and "at_most_once"'
        )
    if breaker is not None and not isinstance(breaker, Breaker):
        raise InvalidArgument(f"breaker is {shown(breaker)}; accepted is Breaker(...)")
    running = max_running_option(max_running)
    if (running or breaker) and delivery == "at_most_once":
        raise InvalidArgument(
            'max_running or breaker is given with delivery="at_most_once"; accepted is "at_least_once" with '
            "it: what is acknowledged before it runs is held by nobody, and could not be counted"
        )
    _check_batch(batch, running, delivery)
    timeout_ms = None if timeout is None else milliseconds("timeout", timeout)
    if max_crashes not in (None, AS_SET):
        whole_number("max_crashes", max_crashes, least=1, most=MOST_CRASHES)
    if max_losses not in (None, AS_SET):
        whole_number("max_losses", max_losses, least=1, most=MOST_LOSSES)
    return TaskOptions(
        queue=queue_name(queue),
        retry=_policy(retry, delivery),
        timeout_ms=timeout_ms,
        hard_timeout_ms=_hard_timeout_ms(hard_timeout, timeout_ms),
        rates=_rates(rate),
        deadline_ms=None if deadline is None else milliseconds("deadline", deadline),
        delivery=delivery,
        unique=unique_option(unique),
        priority=whole_number("priority", priority, least=0, most=HIGHEST_PRIORITY),
        result_ttl_ms=None if result_ttl is None else milliseconds("result_ttl", result_ttl, least=0),
        max_crashes=max_crashes,
        max_losses=max_losses,
        fair=_fair(fair_by),
        tags=tag_names(tags),
        running=running,
        breaker=breaker,
        batch=batch,
    )


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What one call says on top of its task: the defaults of the task where it says nothing."""

    queue: QueueName
    priority: int
    max_crashes: int | None
    due: Instant | None = None
    deadline: Instant | None = None
    unique: Unique | None = None
    id: MessageId | None = None
    extra: CallOptions | None = None
    connection: object | None = field(default=None, repr=False)
    """In whose transaction it is stored; SQL only."""


def plan_of(options: TaskOptions) -> CallPlan:
    """The plan of a call that says nothing."""
    deadline = None if options.deadline_ms is None else After(options.deadline_ms)
    extra = CallOptions(tags=options.tags) if options.tags else None
    return CallPlan(
        options.queue, options.priority, options.max_crashes, None, deadline, options.unique, extra=extra
    )


@dataclass(frozen=True, slots=True)
class Wishes:
    """What `using` was told; None where nothing was said."""

    delay: Seconds | datetime | None = None
    deadline: Seconds | datetime | None = None
    priority: int | None = None
    queue: str | None = None
    id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: Seconds | None = None
    unique: Unique | str | bool | None = None
    connection: object | None = None
    tags: Iterable[str] = ()


def plan_with(plan: CallPlan, wishes: Wishes) -> CallPlan:
    """The plan with these wishes fulfilled; raises `InvalidArgument` for one that cannot be."""
    # Any: each value was checked for its own field, which mypy cannot follow.
    changes: dict[str, Any] = {}
    if wishes.delay is not None:
        changes["due"] = instant("delay", wishes.delay)
    if wishes.deadline is not None:
        changes["deadline"] = instant("deadline", wishes.deadline)
    if wishes.priority is not None:
        changes["priority"] = whole_number("priority", wishes.priority, least=0, most=HIGHEST_PRIORITY)
    if wishes.queue is not None:
        changes["queue"] = queue_name(wishes.queue)
    if wishes.id is not None:
        changes["id"] = message_id(wishes.id)
    if wishes.unique is not None:
        changes["unique"] = unique_option(wishes.unique)
    if wishes.connection is not None:
        changes["connection"] = wishes.connection
    tags = tag_names(wishes.tags)
    if wishes.headers or wishes.timeout is not None or tags:
        changes["extra"] = _extra(plan.extra or CallOptions(), replace(wishes, tags=tags))
    return replace(plan, **changes)


def milliseconds(argument: str, value: object, *, least: int = 1) -> int:
    """Seconds, or a timedelta, as whole milliseconds within a year."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    # A comparison with NaN is False, so it is refused like any number outside.
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        if least <= seconds * 1000 <= LONGEST_HORIZON_MS:
            return round(seconds * 1000)
        if 0 < seconds * 1000 < least:
            return least
    raise InvalidArgument(
        f"{argument} is {shown(value)}; accepted are seconds (or a timedelta) from {least / 1000:g} to "
        f"{LONGEST_HORIZON_MS // 1000:,}"
    )


def instant(argument: str, value: Seconds | datetime) -> Instant:
    """Seconds from now, or a moment with a time zone."""
    if not isinstance(value, datetime):
        return After(milliseconds(argument, value, least=0))
    if value.tzinfo is None:
        raise InvalidArgument(
            f"{argument} is {shown(value)} without a time zone; accepted are aware datetimes"
        )
    return At(max(0, round(value.timestamp() * 1000)))


def unique_option(unique: object) -> Unique | None:
    """True is by all arguments, a text is a key template."""
    match unique:
        case None | False:
            return None
        case True:
            return Unique()
        case str():
            return Unique(unique)
        case Unique():
            return unique
    raise InvalidArgument(f"unique is {shown(unique)}; accepted are True, a key template or Unique(...)")


def _check_batch(batch: object, running: Iterable[MaxRunning], delivery: DeliveryGuarantee) -> None:
    if batch is None:
        return
    if not isinstance(batch, Batch):
        raise InvalidArgument(f"batch is {shown(batch)}; accepted is Batch(size=...)")
    if delivery == "at_most_once":
        raise InvalidArgument(
            'batch is given with delivery="at_most_once"; accepted is "at_least_once" with it: each message '
            "of a batch is acknowledged when the batch has run, by its own result"
        )
    for limit in running:
        if limit.count < batch.size:
            raise InvalidArgument(
                f"max_running is {limit.count:,} and the size of a batch {batch.size:,}; accepted is a size "
                "up to max_running: each message of a batch counts as one that runs"
            )


def _policy(retry: Retry | int | None, delivery: DeliveryGuarantee) -> Retry:
    if retry is None:
        # Who asks for at most once wants no second try; who wants both says so.
        return USUAL_POLICY if delivery == "at_least_once" else NO_RETRY
    return retry if isinstance(retry, Retry) else Retry(max=retry)


def _hard_timeout_ms(hard_timeout: Seconds | None, timeout_ms: int | None) -> int | None:
    grace_ms = 10_000
    if hard_timeout is not None:
        return milliseconds("hard_timeout", hard_timeout)
    return None if timeout_ms is None else timeout_ms + grace_ms


def _fair(fair_by: Fair | str | None) -> Fair | None:
    if isinstance(fair_by, str):
        return Fair(fair_by)
    if fair_by is None or isinstance(fair_by, Fair):
        return fair_by
    raise InvalidArgument(f"fair_by is {shown(fair_by)}; accepted are a key template or Fair(...)")


def _rates(rate: Rate | str | Iterable[Rate]) -> tuple[Rate, ...]:
    if isinstance(rate, str):
        return (Rate(rate),)
    if isinstance(rate, Rate):
        return (rate,)
    rates = tuple(rate)
    if not all(isinstance(each, Rate) for each in rates):
        raise InvalidArgument(
            f"rate is {shown(rate)}; accepted are Rate(...), a text like '100/s', or several"
        )
    return rates


def _extra(known: CallOptions, wishes: Wishes) -> CallOptions:
    timeout_ms = known.timeout_ms if wishes.timeout is None else milliseconds("timeout", wishes.timeout)
    headers, tags = {**known.headers, **wishes.headers}, (*known.tags, *wishes.tags)
    return CallOptions(headers, timeout_ms, tags=tags)
