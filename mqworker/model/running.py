"""How many run at once: `max_running=4`, `max_running={"{tenant}": 2}`, or both, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number
from mqworker.model.rate import argument_names, limit_name

MOST_RUNNING = 1_000_000
_RULE = 'a number, a dict of key to number ({"{tenant}": 2}), MaxRunning(...), or several of these in a list'


@dataclass(frozen=True, slots=True)
class MaxRunning:
    """At most so many calls run at once, over all nodes; with a key, for each value of that key apart.

    `key` is a template of the task's arguments. Tasks that give the same `name` share the limit, in
    whatever queues they are; that needs a single server, and is refused on a Redis Cluster (decision 35).
    With `MaxRunning(1, key="{account}")` the calls of an account run one after another, in their order.
    """

    count: int
    key: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        whole_number("max_running", self.count, least=1, most=MOST_RUNNING)
        if self.key is not None:
            argument_names(self.key)
        if self.name is not None:
            limit_name(self.name)


MaxRunningOption = int | Mapping[str, int] | MaxRunning | Iterable[int | Mapping[str, int] | MaxRunning]


def max_running_option(given: object) -> tuple[MaxRunning, ...]:
    """`max_running` as users write it, as checked values; none for None."""
    if given is None:
        return ()
    if isinstance(given, list | tuple):
        limits = [limit for each in given for limit in _each(each)]
    else:
        limits = list(_each(given))
    keys = [(limit.key, limit.name) for limit in limits]
    if len(set(keys)) < len(keys):
        raise InvalidArgument(f"max_running is {shown(given)}; accepted is one number for each key")
    return tuple(limits)


def _each(given: object) -> Iterable[MaxRunning]:
    match given:
        case MaxRunning():
            return (given,)
        case bool() | str():
            pass
        case int():
            return (MaxRunning(given),)
        case Mapping() if given:
            return tuple(MaxRunning(count, key=key) for key, count in given.items())
    raise InvalidArgument(f"max_running is {shown(given)}; accepted is {_RULE}")
