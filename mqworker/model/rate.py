"""Rate limits as values: "100/s", or "5/m" for each key of its own."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number

MOST_PER_PERIOD = 10_000_000
LONGEST_PERIOD_MS = 366 * 24 * 3_600_000

_MS_BY_UNIT = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TEXT = re.compile(r"([0-9]{1,9})/([0-9]{0,9})(s|m|h|d)", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}", re.ASCII)
_RULE = 'a count and a period: "100/s", "5/m", "1000/h", "10/d", or "3/10s" for three in ten seconds'


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most so many starts per period, over all nodes; with a key, for each value of that key apart.

    The key is a template of the task's arguments: `Rate("5/m", key="{tenant}")`. `burst` is how many may
    start at once after a quiet time; by default as many as the period allows. In any time there are at most
    burst + rate * time starts, whatever is stopped or killed meanwhile (decision 16).

    `cost` names the argument that says how much of the rate a call takes, instead of one start:
    `Rate("100000/m", cost="{tokens}")`. `ctx.spent(1830)` corrects it when the truth is known.
    """

    count: int
    period_ms: int
    key: str | None
    burst: int
    cost: str | None

    def __init__(
        self, text: str, *, key: str | None = None, burst: int | None = None, cost: str | None = None
    ) -> None:
        count, period_ms = parse_rate(text)
        if key is not None:
            argument_names(key)
        if cost is not None:
            _check_cost(cost)
        if burst is not None:
            whole_number("burst", burst, least=1, most=MOST_PER_PERIOD)
        for name, value in (
            ("count", count),
            ("period_ms", period_ms),
            ("key", key),
            ("burst", burst or count),
            ("cost", cost),
        ):
            object.__setattr__(self, name, value)


def parse_rate(text: object) -> tuple[int, int]:
    """(count, period in ms) of "100/s"; raises `InvalidArgument` for anything else."""
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidArgument(f"rate is {shown(text)}; accepted is {_RULE}")
    count, times = int(found[1]), int(found[2] or 1)
    period_ms = times * _MS_BY_UNIT[found[3]]
    if not 1 <= count <= MOST_PER_PERIOD:
        raise InvalidArgument(f"rate is {shown(text)}; accepted is a count from 1 to {MOST_PER_PERIOD:,}")
    if not 1 <= period_ms <= LONGEST_PERIOD_MS:
        raise InvalidArgument(f"rate is {shown(text)}; accepted is a period from a second to a year")
    return count, period_ms


def _check_cost(template: object) -> None:
    rule = 'the name of one argument in braces, such as "{tokens}"'
    if not isinstance(template, str) or not re.fullmatch(r"\{[^\W\d]\w*\}", template):
        raise InvalidArgument(f"cost is {shown(template)}; accepted is {rule}")


def cost_of(rate: Rate, arguments: Mapping[str, object]) -> int:
    """What a call takes of a rate by weight, rounded up; raises `InvalidArgument` for what is no weight."""
    if rate.cost is None:
        return 1
    name = rate.cost[1:-1]
    return checked_cost(name, arguments[name])


def checked_cost(name: str, value: object) -> int:
    """A weight as a whole number; NaN, negative and endless ones are refused."""
    # A comparison with NaN is False, so it is refused like any number outside.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_PER_PERIOD:
        return math.ceil(value)
    raise InvalidArgument(
        f"{name} is {shown(value)}, and a rate is weighed by it; accepted is a number from 0 to "
        f"{MOST_PER_PERIOD:,}"
    )


def limit_name(name: object) -> str:
    """The name of a limit that several tasks share; raises `InvalidArgument`."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidArgument(
        f"name is {shown(name)}; accepted are 1 to 100 letters, digits, dots, dashes and underscores"
    )


def argument_names(template: object) -> tuple[str, ...]:
    """The arguments that a key template names. Plain names only: a template is no way to reach attributes."""
    rule = 'a template that names arguments, such as "{tenant}" or "{region}-{tenant}"'
    if not isinstance(template, str):
        raise InvalidArgument(f"key is {shown(template)}; accepted is {rule}")
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise InvalidArgument(f"key is {shown(template)}: {error}; accepted is {rule}") from error
    names = tuple(name for _, name, _, _ in parts if name is not None)
    is_plain = all(name.isidentifier() for name in names) and not any(
        spec or conv for _, _, spec, conv in parts
    )
    if not names or not is_plain:
        raise InvalidArgument(f"key is {shown(template)}; accepted is {rule}")
    return names
