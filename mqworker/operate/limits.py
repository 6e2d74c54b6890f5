"""Limits and fairness as instruments: how full each bucket is, who waits for it, when its next token comes.

Read from the combinations of limits that somebody waits for, and from the limits that workers published. Of
very many combinations the first in turn are looked at, and it is said how many there are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mqworker.model.limits import OF_THE_QUEUE, SHARED
from mqworker.model.names import QueueName
from mqworker.operate.running_limits import SlotView, read_slots
from mqworker.operate.system import System
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.command import Command
from mqworker.store.script import RawReply
from mqworker.tasks.remote_tasks import read_published_tasks

MOST_LIMITS = 200
SHARES_MINUTES = 5
_BUCKET = re.compile(r"([^=|]+)=(\d+)/(\d+)/(\d+)")
_FAIR = re.compile(r"fair=(\d+)~([^|]*)")


@dataclass(frozen=True, slots=True)
class BucketView:
    """One token bucket."""

    queue: str
    name: str
    """The task, and behind a colon the value of the limit's key."""
    count: int
    period_ms: int
    burst: int
    tokens: float
    """How many may start at once, now."""
    most_tokens: float
    """The burst, without what is held back for permits on their way (decision 16)."""
    waiting: int
    """Messages that wait for limits which need it."""
    next_token_ms: int
    """How long until one may start; 0: now."""

    @property
    def fill(self) -> float:
        """From 0 to 1."""
        return self.tokens / self.most_tokens if self.most_tokens else 0.0


@dataclass(frozen=True, slots=True)
class TenantView:
    """Somebody whose calls take turns with those of others."""

    tenant: str
    weight: int
    waiting: int
    started: int
    """Of the starts that were sampled in the last minutes."""
    asked: float
    """The share that its weight gives it among those who wanted something, from 0 to 1."""
    got: float | None
    """The share that it had of the starts of the last minutes; None where there were none."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """What one queue limits."""

    queue: str
    combinations: int
    waiting: int
    is_whole: bool
    """False where there are more combinations than are looked at."""
    buckets: tuple[BucketView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    slots: tuple[SlotView, ...] = ()
    """How many run at once, and keys that are closed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """All of them, at one moment."""

    at_ms: int
    queues: tuple[QueueLimits, ...] = ()


@dataclass(slots=True)
class _Found:
    """What was read of one queue."""

    combinations: int
    waiting_by_limits: dict[str, int] = field(default_factory=dict)
    full_at_by_bucket: dict[str, float] = field(default_factory=dict)
    started_by_tenant: Counter[str] = field(default_factory=Counter)


def read_limits(system: System) -> Limits:
    """Everything that limits something, or makes tenants take turns."""
    at_ms, namespace = system.now_ms(), system.settings.namespace
    known = _published_rates(system)
    names = sorted({*system.queue_names(), *known})
    keys = {name: WorkQueueKeys.of(namespace, QueueName(name)) for name in names}
    first = _ask_each(system, [command for name in names for command in _first_questions(keys[name])])
    permit_ms = system.settings.permit_s * 1000
    found: list[QueueLimits] = []
    for position, name in enumerate(names):
        combinations, listed = first[2 * position : 2 * position + 2]
        limit_names = [each.decode(errors="replace") for each in listed or []]
        if not combinations and name not in known:
            continue
        buckets = _specs([*limit_names, *known.get(name, ())])
        read = _read(
            system, keys[name], limit_names, list(buckets), combinations=combinations or 0, at_ms=at_ms
        )
        slots = read_slots(system, name, [*limit_names, *known.get(name, ())], at_ms)
        found.append(replace(_limits_of(name, read, buckets, at_ms, permit_ms), slots=slots))
    return Limits(at_ms, tuple(found))


def _published_rates(system: System) -> dict[str, list[str]]:
    """Of each queue the limits of its tasks without a key; `fair` where its tenants take turns."""
    combinations: dict[str, list[str]] = {}
    for task in read_published_tasks(system.store, system.settings.namespace).values():
        options = task.definition.options
        is_limited = options.is_limited or task.queue_running is not None
        into = combinations.setdefault(options.queue, []) if is_limited else []
        into += [
            f"{task.name}={rate.count}/{rate.period_ms}/{rate.burst}"
            for rate in options.rates
            if rate.key is None
        ]
        into += [
            f"{task.name if each.name is None else SHARED + each.name}<={each.count}"
            for each in options.running
            if each.key is None
        ]
        into += [] if task.queue_running is None else [f"{OF_THE_QUEUE}<={task.queue_running}"]
    return combinations


def _first_questions(keys: WorkQueueKeys) -> list[Command]:
    combinations = keys.named("limits")
    return [("ZCARD", combinations), ("ZRANGE", combinations, 0, MOST_LIMITS - 1)]


def _ask_each(system: System, commands: Sequence[Command]) -> list[RawReply]:
    """The replies; nothing in the place of one that was refused: the verdict tells of it."""
    replies = system.store.send_each(commands, [str(each[1]) for each in commands]) if commands else []
    return [None if isinstance(each, Exception) else each for each in replies]


def _read(
    system: System,
    keys: WorkQueueKeys,
    names: Sequence[str],
    buckets: Sequence[str],
    *,
    combinations: int,
    at_ms: int,
) -> _Found:
    minute = at_ms // 60_000
    commands: list[Command] = [("LLEN", keys.named(f"limited:{name}")) for name in names]
    commands += [("HGET", keys.named("buckets"), bucket) for bucket in buckets]
    commands += [("HGETALL", keys.named(f"shares:{minute - back}")) for back in range(SHARES_MINUTES)]
    replies = _ask_each(system, commands)
    found = _Found(combinations)
    found.waiting_by_limits = {name: int(_number(each)) for name, each in zip(names, replies, strict=False)}
    full = replies[len(names) : len(names) + len(buckets)]
    found.full_at_by_bucket = dict(zip(buckets, map(_number, full), strict=True))
    for pairs in replies[len(names) + len(buckets) :]:
        for tenant, count in zip((pairs or [])[::2], (pairs or [])[1::2], strict=True):
            found.started_by_tenant[tenant.decode(errors="replace")] += int(_number(count))
    return found


def _number(raw: RawReply) -> float:
    try:
        return float(raw or 0)
    except (TypeError, ValueError):
        return 0.0


def _specs(combinations: Iterable[str]) -> dict[str, tuple[int, int, int]]:
    """The buckets that stand in the names of combinations: count, period in ms, burst."""
    return {
        name: (int(count), int(period), int(burst))
        for limits in combinations
        for name, count, period, burst in _BUCKET.findall(limits)
        if int(count) and int(burst)
    }


def _limits_of(
    queue: str, found: _Found, specs: Mapping[str, tuple[int, int, int]], at_ms: int, permit_ms: float
) -> QueueLimits:
    waiting_by_bucket: Counter[str] = Counter()
    for limits, waiting in found.waiting_by_limits.items():
        for name, *_ in _BUCKET.findall(limits):
            waiting_by_bucket[name] += int(waiting)
    buckets = [
        bucket_view(
            (queue, name, waiting_by_bucket[name]),
            spec,
            found.full_at_by_bucket[name],
            at_ms=at_ms,
            permit_ms=permit_ms,
        )
        for name, spec in specs.items()
    ]
    return QueueLimits(
        queue,
        found.combinations,
        int(sum(found.waiting_by_limits.values())),
        found.combinations <= MOST_LIMITS,
        tuple(sorted(buckets, key=lambda each: (-each.waiting, each.name))),
        tuple(_tenants(found)),
    )


def bucket_view(
    about: tuple[str, str, int],
    spec: tuple[int, int, int],
    full_at_ms: float,
    *,
    at_ms: int,
    permit_ms: float,
) -> BucketView:
    """A bucket (queue, name, how many wait) as admit.lua sees it. Pure."""
    queue, name, waiting = about
    count, period_ms, burst = spec
    step_ms = period_ms / count
    most = max(1.0, burst / 2, burst - permit_ms / step_ms)
    full_at_ms = min(max(at_ms, full_at_ms), at_ms + most * step_ms)
    tokens = max(0.0, most - (full_at_ms - at_ms) / step_ms)
    next_ms = max(0.0, full_at_ms - (most - 1) * step_ms - at_ms)
    return BucketView(
        queue, name, count, period_ms, burst, round(tokens, 2), round(most, 2), waiting, round(next_ms)
    )


def _tenants(found: _Found) -> list[TenantView]:
    weights: dict[str, int] = {}
    waiting: Counter[str] = Counter()
    for limits, count in found.waiting_by_limits.items():
        fair = _FAIR.match(limits)
        if fair is not None:
            weights[fair[2]] = int(fair[1])
            waiting[fair[2]] += int(count)
    for named in found.started_by_tenant:
        weight, _, tenant = named.partition("~")
        weights.setdefault(tenant, int(weight) if weight.isdecimal() else 1)
    started = Counter({named.partition("~")[2]: count for named, count in found.started_by_tenant.items()})
    total, heaviest = started.total(), sum(weights.values())
    views = [
        TenantView(
            tenant,
            weight,
            waiting[tenant],
            started[tenant],
            round(weight / heaviest, 4),
            round(started[tenant] / total, 4) if total else None,
        )
        for tenant, weight in weights.items()
    ]
    return sorted(views, key=lambda each: (-each.waiting, -each.started, each.tenant))[:MOST_LIMITS]
