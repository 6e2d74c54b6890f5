"""Uniqueness as users ask for it: which calls mean the same, and how long a second one is turned away."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mqworker.errors import InvalidArgument
from mqworker.model.guard import Guard, GuardMode, unique_guard
from mqworker.model.names import shown
from mqworker.model.rate import argument_names
from mqworker.model.value_codec import pack

Until = Literal["settled", "claimed"]

_LONGEST_SHOWN_KEY = 1_000
_MODE_BY_UNTIL = {"settled": GuardMode.UNTIL_SETTLED, "claimed": GuardMode.UNTIL_CLAIMED}


@dataclass(frozen=True, slots=True)
class Unique:
    """Of calls with the same key only the first is stored; the others get the job that is there already.

    `key` is a template of the arguments (`"{user}"`); without one, all arguments together are the key. It
    holds until the message is settled (also by burial) or, with `until="claimed"`, until a worker takes it;
    `ttl` (seconds) holds it for that time instead, whatever becomes of the message.
    """

    key: str | None = None
    until: Until = "settled"
    ttl: float | None = None

    def __post_init__(self) -> None:
        if self.key is not None:
            argument_names(self.key)
        if self.until not in _MODE_BY_UNTIL:
            raise InvalidArgument(f'until is {shown(self.until)}; accepted are "settled" and "claimed"')
        if self.ttl is not None:
            unique_guard("probe", GuardMode.FOR_A_TIME, ttl_ms=_ttl_ms(self.ttl))


def guard_of(unique: Unique, task: str, arguments: Mapping[str, object]) -> Guard:
    """The guard of one call, of its arguments by name and with defaults: however it was written."""
    if unique.key is None:
        key = hashlib.sha256(pack(list(arguments.items()))).hexdigest()
    else:
        key = unique.key.format_map(arguments)
    if len(key) > _LONGEST_SHOWN_KEY:
        key = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
    mode = _MODE_BY_UNTIL[unique.until] if unique.ttl is None else GuardMode.FOR_A_TIME
    return unique_guard(f"{task}:{key}", mode, ttl_ms=0 if unique.ttl is None else _ttl_ms(unique.ttl))


def _ttl_ms(ttl: object) -> int:
    if isinstance(ttl, int | float) and not isinstance(ttl, bool) and 0 < ttl < float("inf"):
        return max(1, round(ttl * 1000))
    raise InvalidArgument(f"ttl is {shown(ttl)}; accepted is a number of seconds above 0")
