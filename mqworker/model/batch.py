"""Batches as values: how many calls of a task run together, and how long the first waits for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

from mqworker.errors import InvalidArgument
from mqworker.model.limits import storable
from mqworker.model.names import shown, whole_number
from mqworker.model.rate import argument_names

LARGEST_SIZE = 10_000
LONGEST_WAIT_S = 60
"""A batch that is being gathered is held by a node: nobody else can have it meanwhile."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Calls of a task that run together: `@app.task(batch=Batch(size=500, wait=0.2, by="{tenant}"))`.

    At the most `size` in one call of the function. A call that finds fewer waiting waits `wait` seconds for
    others, counted from the first; 0 takes what is there. With `by`, a template of the fields of a row (or of
    the parameter itself), only calls with the same value run together.
    """

    size: int
    wait: float = 0.0
    by: str | None = None

    def __post_init__(self) -> None:
        whole_number("size", self.size, least=1, most=LARGEST_SIZE)
        _check_wait(self.wait)
        if self.by is not None:
            argument_names(self.by)

    @property
    def wait_ms(self) -> int:
        """How long the first call waits for others."""
        return round(self.wait * 1000)

    def key_of(self, arguments: Mapping[str, object]) -> str | None:
        """With whose calls this one runs together; None where that does not matter."""
        return None if self.by is None else storable(self.by.format_map(arguments))


def _check_wait(wait: object) -> None:
    # A comparison with NaN is False, so it is refused like any number outside.
    if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 <= wait <= LONGEST_WAIT_S:
        return
    raise InvalidArgument(f"wait is {shown(wait)}; accepted are seconds from 0 to {LONGEST_WAIT_S}")


class BatchTerms(NamedTuple):
    """What a dispatcher has to know of a task that takes batches."""

    size: int
    wait_ms: int
    is_keyed: bool


@dataclass(slots=True)
class QueueBatches:
    """Which tasks take batches, as a queue sees it, and how many messages it wants for those of its own."""

    by_task: Mapping[bytes, BatchTerms] = field(default_factory=dict)
    """Of all queues: a call may go through another one than its task says."""
    own: Sequence[BatchTerms] = ()
    are_all: bool = False
    """Whether all of its own tasks take batches."""
    room: int = 0

    def learn(self, own_tasks: Sequence[bytes], by_task: Mapping[bytes, BatchTerms]) -> None:
        """What the application says."""
        self.by_task = by_task
        self.own = [by_task[task] for task in own_tasks if task in by_task]
        self.are_all = len(self.own) == len(own_tasks)

    def capacity(self, workers: int, most_keyed: int) -> int:
        """How many are worth gathering for so many workers.

        At least one batch of each task, or none of them might ever be full. With keys more: the batches of
        all keys fill up side by side.
        """
        if not workers:
            return 0
        sizes = [terms.size for terms in self.own]
        most = max(sum(sizes), workers * max(sizes, default=0))
        return max(most, most_keyed) if any(terms.is_keyed for terms in self.own) else most

    def wanted(self, room: int) -> int:
        """How many to claim where others of its tasks would have so much room."""
        return self.room if self.are_all else max(room, self.room)


class RowArguments(dict[str, Any]):
    """The arguments of a call by name, and behind them the fields of its row. Any: the user's values."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._row = next(iter(arguments.values()), None)

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - see above
        """A field of the row, by key or by attribute."""
        row = self._row
        if isinstance(row, Mapping):
            if name in row:
                return row[name]
        elif name in field_names(type(row)) or (not name.startswith("_") and hasattr(row, name)):
            return getattr(row, name)
        raise InvalidArgument(
            f"{shown(row)} has no {name}, and a key is made of it; accepted are rows that have it"
        )


def field_names(kind: object) -> frozenset[str]:
    """The fields of a class of rows: dataclass, TypedDict, NamedTuple, model. Empty: they cannot be told."""
    if is_dataclass(kind):
        return frozenset(each.name for each in fields(kind))
    for attribute in ("_fields", "model_fields", "__struct_fields__"):
        if found := getattr(kind, attribute, None):
            return frozenset(found)
    is_typed_dict = hasattr(kind, "__total__") and hasattr(kind, "__required_keys__")
    return frozenset(getattr(kind, "__annotations__", ())) if is_typed_dict else frozenset()


def half_of(members: int) -> int:
    """How many run together after a worker died over so many: the power of two below, 1 at last."""
    return 1 if members <= 1 else 1 << ((members - 1).bit_length() - 1)
