"""Strikes: calls that are not to be run for a while: of a task, with certain arguments or tags. Pure.

A strike is checked where a call would begin, in the worker, which knows the names of its arguments. What is
struck is not lost: it becomes a dead letter with the reason `struck`, and can be put back in line later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import shown, task_name
from mqworker.model.strict_json import JsonLimits, read_json

STRUCK = "struck"
"""The reason in the dead letter."""
ERROR = "Struck"
MOST_STRIKES = 100
TAG, ARGUMENT = "tag", "args."
_MOST_CONDITIONS = 8
_LONGEST_CONDITION = 500
_LONGEST_NOTE = 500
_ID_CHARACTERS = 40
_LIMITS = JsonLimits(most_bytes=16_384, deepest=4, most_nodes=100)


@dataclass(frozen=True, slots=True)
class Strike:
    """Skip calls for which all of this is so."""

    id: str
    task: str
    """A task's name, the beginning of one with a star behind it, or a star for all tasks."""
    where: tuple[tuple[str, str], ...] = ()
    """`args.<path>` or `tag`, and the text of the value."""
    until_ms: int | None = None
    """By the server's clock; None: until somebody removes it."""
    by: str = ""
    note: str = ""
    since_ms: int = 0

    @property
    def told(self) -> str:
        """What it skips, in words."""
        conditions = " and ".join(f"{key} = {text}" for key, text in self.where)
        return f"{self.task} where {conditions}" if conditions else self.task

    def means(self, task: str) -> bool:
        """Whether calls of this task may be struck by it."""
        return task == self.task or (self.task.endswith("*") and task.startswith(self.task[:-1]))

    def hits(self, args: Sequence[object], kwargs: Mapping[str, object], tags: Iterable[str]) -> bool:
        """Whether a call of such a task is struck; `kwargs` are all arguments that have a name."""
        known = set(tags)
        return all(
            text in known if key == TAG else value_at(key.removeprefix(ARGUMENT), args, kwargs) == text
            for key, text in self.where
        )

    def as_fields(self) -> dict[str, object]:
        """Plain values, fit for JSON and for mail."""
        return {
            "id": self.id,
            "task": self.task,
            "where": [list(each) for each in self.where],
            "until_ms": self.until_ms,
            "by": self.by,
            "note": self.note,
            "since_ms": self.since_ms,
        }


def checked_strike(strike: Strike) -> Strike:
    """The strike, if it can be meant; raises InvalidArgument with what is accepted."""
    name = strike.task.removesuffix("*")
    if name:
        task_name(name)
    if not strike.where and not name:
        raise InvalidArgument("the strike would skip everything; accepted is one with a task, or conditions")
    if len(strike.where) > _MOST_CONDITIONS:
        raise InvalidArgument(f"where: got {len(strike.where)}; accepted are up to {_MOST_CONDITIONS}")
    for key, text in strike.where:
        is_known = key == TAG or (key.startswith(ARGUMENT) and key != ARGUMENT)
        if not is_known or len(key) + len(text) > _LONGEST_CONDITION:
            raise InvalidArgument(
                f"where is {shown(f'{key}={text}')}; accepted are args.<name>=<value> and tag=<tag>, up to "
                f"{_LONGEST_CONDITION} characters"
            )
    if len(strike.note) > _LONGEST_NOTE:
        raise InvalidArgument(
            f"note is {len(strike.note):,} characters; accepted are up to {_LONGEST_NOTE:,}"
        )
    return strike


def parse_condition(text: str) -> tuple[str, str]:
    """A condition as people type it: `args.tenant=acme`."""
    key, sign, value = text.partition("=")
    if not sign:
        raise InvalidArgument(f"where is {shown(text)}; accepted are args.<name>=<value> and tag=<tag>")
    return key.strip(), value.strip()


def strike_of(fields: object) -> Strike:
    """The strike in plain values; raises InvalidArgument where somebody else wrote them."""
    if not isinstance(fields, dict):
        raise InvalidArgument("these are not the fields of a strike")
    where, until_ms, since_ms = fields.get("where"), fields.get("until_ms"), fields.get("since_ms", 0)
    if (
        not isinstance(where, list)
        or not all(isinstance(each, list) and len(each) == len(("key", "text")) for each in where)
        or not (until_ms is None or type(until_ms) is int)
        or type(since_ms) is not int
    ):
        raise InvalidArgument("these are not the fields of a strike")
    conditions = tuple((str(key), str(text)) for key, text in where)
    strike = Strike(
        str(fields.get("id", ""))[:_ID_CHARACTERS],
        str(fields.get("task", "")),
        conditions,
        until_ms,
        str(fields.get("by", "")),
        str(fields.get("note", "")),
        since_ms,
    )
    return checked_strike(strike)


def strikes_in(texts: Iterable[bytes], now_ms: int) -> list[Strike]:
    """Those that are in force; what somebody else wrote among them is passed over."""
    found: list[Strike] = []
    for text in texts:
        try:
            strike = strike_of(read_json(text, _LIMITS))
        except (InvalidArgument, InvalidMessage):
            continue
        if strike.until_ms is None or strike.until_ms > now_ms:
            found.append(strike)
    return sorted(found, key=lambda each: (each.since_ms, each.id))[:MOST_STRIKES]


def value_at(path: str, args: Sequence[object], kwargs: Mapping[str, object]) -> str | None:
    """The value that a path leads to, as text: `tenant`, `0`, `customer.id`; None: to none."""
    first, *further = path.split(".")
    if first.isdecimal() and int(first) < len(args):
        value: object = args[int(first)]
    elif first in kwargs:
        value = kwargs[first]
    else:
        return None
    for step in further:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list | tuple) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return str(value)
