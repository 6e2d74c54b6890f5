"""Retry policy: whether a failed message is tried again, and when. A pure decision.

`Retry` is one name in two roles, as users know it: `retry=Retry(max=8)` on a task is its policy, and
`raise Retry(in_=60)` inside a task asks for one more try after that time. It is an exception, hence no
dataclass; its fields are read-only all the same. Crashes of a worker are no failures: they are counted apart.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument
from mqworker.model.names import LONGEST_HORIZON_MS, shown, whole_number

MOST_RETRIES = 998
"""The record counts failures in three digits."""

USUAL_RETRIES = 3
_LARGEST_POWER = 64


class Retry(Exception):  # a name for users: not an error of ours, and not only an error
    """How a task is retried; or, raised inside a task, the wish to be tried again.

    `max` retries after the first failure, the n-th after `first * backoff ** (n - 1)` seconds, at most `cap`,
    of which a random share of `jitter` (0 to 1) is taken off. `on` limits it to these exception types (or
    their names), `never` excludes some. `in_` (seconds) is for raising: when to try again; without it the
    policy of the task decides. A raised Retry counts as a failure and respects `max` of the task's policy.
    """

    max: int
    backoff: float
    first: float
    cap: float
    jitter: float
    on: tuple[str, ...]
    never: tuple[str, ...]
    in_: float | None

    def __init__(
        self,
        reason: str = "",
        *,
        max: int = USUAL_RETRIES,  # noqa: A002 - the name that users know from other libraries
        backoff: float = 2.0,
        first: float = 1.0,
        cap: float = 600.0,
        jitter: float = 0.2,
        on: Iterable[type[BaseException] | str] = (),
        never: Iterable[type[BaseException] | str] = (),
        in_: float | None = None,
    ) -> None:
        super().__init__(reason or "the task asked to be tried again")
        fields: dict[str, Any] = {
            "max": whole_number("max", max, least=0, most=MOST_RETRIES),
            "backoff": _number("backoff", backoff, least=1, most=100),
            "first": _number("first", first, least=0, most=LONGEST_HORIZON_MS / 1000),
            "cap": _number("cap", cap, least=0, most=LONGEST_HORIZON_MS / 1000),
            "jitter": _number("jitter", jitter, least=0, most=1),
            "on": tuple(_type_name("on", each) for each in on),
            "never": tuple(_type_name("never", each) for each in never),
            "in_": None if in_ is None else _number("in_", in_, least=0, most=LONGEST_HORIZON_MS / 1000),
        }
        self.__dict__.update(fields)

    def __setattr__(self, name: str, value: object) -> None:
        """Only what Python itself notes on an exception may change."""
        if not name.startswith("__"):
            raise AttributeError(f"a Retry cannot be changed: {name}")
        super().__setattr__(name, value)


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again after so many milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Bury it, for this reason."""

    reason: str


Decision = RetryIn | GiveUp


def decide(policy: Retry, failures: int, error: BaseException, chance: random.Random) -> Decision:
    """What becomes of a message that failed `failures` times before, and now with this error."""
    names = {kind.__qualname__ for kind in type(error).__mro__} | {
        kind.__name__ for kind in type(error).__mro__
    }
    names |= {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}
    return decide_by_names(
        policy, failures, names, chance, in_s=error.in_ if isinstance(error, Retry) else None
    )


def decide_by_names(
    policy: Retry, failures: int, names: Iterable[str], chance: random.Random, *, in_s: float | None = None
) -> Decision:
    """The same where the error is known by the names of its type and of those above it."""
    known = set(names)
    if known.intersection(policy.never):
        return GiveUp("not_retried")
    # Who raises Retry has decided already that another try makes sense.
    if policy.on and "Retry" not in known and not known.intersection(policy.on):
        return GiveUp("not_retried")
    if failures >= policy.max:
        return GiveUp("retries_exhausted" if policy.max else "failed")
    return RetryIn(round(1000 * (backoff_s(policy, failures, chance) if in_s is None else in_s)))


def backoff_s(policy: Retry, failures: int, chance: random.Random) -> float:
    """The pause before the retry that follows this many earlier failures."""
    # Bounded power: a float overflows at 10^308, long after any cap.
    pause = min(policy.cap, policy.first * policy.backoff ** min(failures, _LARGEST_POWER))
    return pause * (1 - policy.jitter * chance.random())


def _number(argument: str, value: object, *, least: float, most: float) -> float:
    # A comparison with NaN is False, so it is refused like any other number outside.
    if isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most:
        return float(value)
    raise InvalidArgument(f"{argument} is {shown(value)}; accepted is a number from {least:g} to {most:,.0f}")


def _type_name(argument: str, kind: object) -> str:
    if isinstance(kind, type) and issubclass(kind, BaseException):
        return f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(kind, str) and kind:
        return kind
    raise InvalidArgument(f"{argument} holds {shown(kind)}; accepted are exception types or their names")


NO_RETRY = Retry(max=0)
USUAL_POLICY = Retry()
"""For tasks that say nothing: three retries, after about 1, 2 and 4 seconds."""
