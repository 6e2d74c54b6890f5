"""Limits: what a limited message waits for, as one text.

    shop.send_mail<=4|shop.send_mail:tenant7<=2|shop.send_mail=100/1000/100|shop.send_mail:tenant7=5/60000/5
    fair=3~tenant7|shop.send_mail=100/1000/100

How many run at once, and buckets with count, period in milliseconds and burst; before them, where tenants
take turns, the weight and the tenant; joined by '|'. Messages with the same text wait for the same, so Redis
needs no other table. What a limit counts is named for its task, and behind a colon for the value of its key;
'@' is the queue, and a name that begins with '$' is shared by whoever gives it. `name!5/60000/30000` is a
circuit breaker; a '*' behind a bucket says that calls take more than one of it, and behind a '&' stands
what this one takes: the only part that is not the same for all messages that wait together.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from mqworker.model.breaker import Breaker
from mqworker.model.fair import Fair
from mqworker.model.names import TaskName
from mqworker.model.rate import Rate, cost_of
from mqworker.model.running import MaxRunning

_STORABLE = re.compile(r"[A-Za-z0-9_.:@/+~-]{1,100}", re.ASCII)
OF_THE_QUEUE = "@"
SHARED = "$"


def limits_of(
    task: TaskName,
    rates: Sequence[Rate],
    arguments: Mapping[str, object],
    fair: Fair | None = None,
    *,
    running: Sequence[MaxRunning] = (),
    breaker: Breaker | None = None,
) -> str:
    """The limits of a call: those of its task, each with the value of its key; its tenant; what it costs."""
    parts = [f"{running_name(task, each, arguments, running)}<={each.count}" for each in running]
    if breaker is not None:
        name = task if breaker.key is None else f"{task}:{storable(breaker.key.format_map(arguments))}"
        parts.append(f"{name}!{breaker.failures}/{breaker.within_ms}/{breaker.closed_for_ms}")
    rated = rate_limits(task, [(rate, rate.key and rate.key.format_map(arguments)) for rate in rates])
    if rated:
        parts.append(rated)
    if fair is not None:
        tenant, weight = fair.tenant(arguments)
        parts.insert(0, f"fair={weight}~{storable(tenant)}")
    costs = [str(cost_of(rate, arguments)) for rate in rates if rate.cost is not None]
    return "|".join(parts) + (f"&{','.join(costs)}" if costs else "")


def names_of_key(
    task: TaskName,
    key: str | None,
    arguments: Mapping[str, object],
    *,
    rates: Sequence[Rate],
    running: Sequence[MaxRunning],
    breaker: Breaker | None,
) -> list[str]:
    """Under which names the limits with this key count for a call; None is the limits without one."""
    own = [task if key is None else f"{task}:{storable(key.format_map(arguments))}"]
    has_own = any(rate.key == key for rate in rates) or (breaker is not None and breaker.key == key)
    return [
        *dict.fromkeys(
            [
                *(own if has_own else ()),
                *(running_name(task, each, arguments, running) for each in running if each.key == key),
            ]
        )
    ]


def with_queue_limit(limits: str, most: int) -> str:
    """The same where the queue has a limit of its own on how many run at once."""
    own = f"{OF_THE_QUEUE}<={most}"
    fair, _, rest = limits.partition("|") if limits.startswith("fair=") else ("", "", limits)
    return "|".join(part for part in (fair, own, rest) if part)


def running_name(
    task: str, limit: MaxRunning, arguments: Mapping[str, object], others: Sequence[MaxRunning] = ()
) -> str:
    """Under which name a limit on how many run at once is counted."""
    home = task if limit.name is None else f"{SHARED}{limit.name}"
    if limit.key is None:
        return home
    value = storable(limit.key.format_map(arguments))
    keys = [each.key for each in others if each.key is not None and each.name == limit.name]
    if keys and keys[0] != limit.key:  # equal values of different keys are not the same; '#' stands in none
        return f"{home}:{storable(limit.key)}#{value}"
    return f"{home}:{value}"


def rate_limits(task: TaskName, limits: Sequence[tuple[Rate, str | None]]) -> str:
    """Rates as limits, each with the value of its key, if it has one."""
    return "|".join(_bucket(task, rate, key) for rate, key in limits)


def _bucket(task: TaskName, rate: Rate, key: str | None) -> str:
    name = task if key is None else f"{task}:{storable(key)}"
    return f"{name}={rate.count}/{rate.period_ms}/{rate.burst}{'' if rate.cost is None else '*'}"


def storable(key: str) -> str:
    """The value of a key as it can stand in a record: itself, or a digest where it is long or strange."""
    return key if _STORABLE.fullmatch(key) else "~" + hashlib.sha256(key.encode()).hexdigest()[:40]


def limit_told(part: str) -> str:
    """One part of a text of limits in words."""
    if (found := re.fullmatch(r"fair=(\d+)~(.*)", part)) is not None:
        return f"{found[2]} takes turns with others, {found[1]} at a time"
    if (found := re.fullmatch(r"(.*)<=(\d+)", part)) is not None:
        return f"{int(found[2]):,} of {found[1]} at once"
    if (found := re.fullmatch(r"(.*)!(\d+)/\d+/\d+", part)) is not None:
        return f"{found[1]} is closed after {found[2]} failures"
    if (found := re.fullmatch(r"(.*)=(\d+)/(\d+)/\d+\*?", part)) is not None:
        return f"{int(found[2]):,} of {found[1]} in {int(found[3]) / 1000:g} s"
    return part
