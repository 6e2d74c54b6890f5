"""Gates: where limited messages wait. A gate is named by its limits, so Redis needs no other table.

    shop.send_mail=100/1000/100|shop.send_mail:tenant7=5/60000/5

Buckets with count, period in milliseconds and burst, joined by '|'. Messages at one gate wait for the same.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from mqworker.model.names import TaskName
from mqworker.model.rate import Rate

_STORABLE = re.compile(r"[A-Za-z0-9_.:@/+~-]{1,100}", re.ASCII)


def gate_of(task: TaskName, rates: Sequence[Rate], arguments: Mapping[str, object]) -> str:
    """The gate of a call: its task's rates, those with a key each for its own value of it."""
    return gate_name(task, [(rate, rate.key and rate.key.format_map(arguments)) for rate in rates])


def gate_name(task: TaskName, limits: Sequence[tuple[Rate, str | None]]) -> str:
    """The name of a gate: rates, each with the value of its key, if it has one."""
    return "|".join(_bucket(task, rate, key) for rate, key in limits)


def _bucket(task: TaskName, rate: Rate, key: str | None) -> str:
    name = task if key is None else f"{task}:{_stored(key)}"
    return f"{name}={rate.count}/{rate.period_ms}/{rate.burst}"


def _stored(key: str) -> str:
    return key if _STORABLE.fullmatch(key) else "~" + hashlib.sha256(key.encode()).hexdigest()[:40]
