"""Limits: what a limited message waits for, a permit of its rates or the turn of its tenant, as one text.

    shop.send_mail=100/1000/100|shop.send_mail:tenant7=5/60000/5
    fair=3~tenant7|shop.send_mail=100/1000/100

Buckets with count, period in milliseconds and burst; before them, where tenants take turns, the weight and
the tenant; joined by '|'. Messages with the same text wait for the same, so Redis needs no other table.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from mqworker.model.fair import Fair
from mqworker.model.names import TaskName
from mqworker.model.rate import Rate

_STORABLE = re.compile(r"[A-Za-z0-9_.:@/+~-]{1,100}", re.ASCII)


def limits_of(
    task: TaskName, rates: Sequence[Rate], arguments: Mapping[str, object], fair: Fair | None = None
) -> str:
    """The limits of a call: the rates of its task, each with the value of its key; and its tenant."""
    rated = rate_limits(task, [(rate, rate.key and rate.key.format_map(arguments)) for rate in rates])
    if fair is None:
        return rated
    tenant, weight = fair.tenant(arguments)
    return f"fair={weight}~{_stored(tenant)}" + (f"|{rated}" if rated else "")


def rate_limits(task: TaskName, limits: Sequence[tuple[Rate, str | None]]) -> str:
    """Rates as limits, each with the value of its key, if it has one."""
    return "|".join(_bucket(task, rate, key) for rate, key in limits)


def _bucket(task: TaskName, rate: Rate, key: str | None) -> str:
    name = task if key is None else f"{task}:{_stored(key)}"
    return f"{name}={rate.count}/{rate.period_ms}/{rate.burst}"


def _stored(key: str) -> str:
    return key if _STORABLE.fullmatch(key) else "~" + hashlib.sha256(key.encode()).hexdigest()[:40]
