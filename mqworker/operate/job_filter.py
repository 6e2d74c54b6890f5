"""What is searched for: words as people type them, as a filter. Pure.

    state:dead queue:mail task:shop.charge id:01J error:Timeout age:>5m tag:import args.tenant:acme

A word without a colon is a part of an id, a task's name or an error. All words must fit.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import shown
from mqworker.model.record import ID_AT
from mqworker.model.strike import value_at
from mqworker.operate.visible_body import BodyHidden, visible_call

LIVING = ("ready", "delayed", "limited", "leased", "dead")
ENDED = ("succeeded", "cancelled", "expired")
STATES = (*LIVING, *ENDED)
_SAME = {"running": "leased", "held": "leased", "waiting": "ready", "done": "succeeded"}
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_NO_WORDS = {"true", "false", "none", "nan", "inf"}
_KEYS = "state, queue, task, id, error, age, tag and args.<name>"


@dataclass(frozen=True, slots=True)
class JobFilter:
    """All of this must be so; what is empty does not matter."""

    states: tuple[str, ...] = ()
    queue: str = ""
    task: str = ""
    id_prefix: str = ""
    error: str = ""
    older_than_ms: int | None = None
    younger_than_ms: int | None = None
    arguments: tuple[tuple[str, str], ...] = ()
    """Path below `args` and the text of the value."""
    tags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def searched_states(self) -> tuple[str, ...]:
        """Where to look: what lives, unless states are named."""
        return self.states or LIVING


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message as a filter sees it."""

    id: str
    task: str
    enqueued_at_ms: int | None
    error: str = ""
    body: bytes | None = field(default=None, repr=False)
    tags: tuple[str, ...] | None = None
    """None: they stand in the body."""


def parse_filter(text: str) -> JobFilter:
    """The filter that these words say; raises InvalidArgument with what is accepted."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidArgument(f"the search is {shown(text)}; a quotation mark has no partner") from error
    found = JobFilter()
    for word in words:
        key, colon, value = word.partition(":")
        found = _with(found, key, value) if colon and value else replace(found, words=(*found.words, word))
    return found


def may_fit(wanted: JobFilter, record: bytes) -> bool:
    """Whether a stored message may be one of those, seen without decoding it: most are not."""
    if wanted.id_prefix and not record.startswith(wanted.id_prefix.encode(), ID_AT):
        return False
    return all(text in record for text in _bytes_in(wanted))


@lru_cache(maxsize=64)
def _bytes_in(wanted: JobFilter) -> tuple[bytes, ...]:
    """What must stand in the bytes of each that fits. Of arguments only words: numbers are packed."""
    words = [text for _, text in wanted.arguments if text.isalpha() and text.lower() not in _NO_WORDS]
    return tuple(text.encode() for text in (*wanted.tags, *words))


def fits(wanted: JobFilter, job: Candidate, now_ms: int) -> bool:
    """Whether a message is one of those; arguments last, for they must be decoded."""
    if not job.id.startswith(wanted.id_prefix) or wanted.task.lower() not in job.task.lower():
        return False
    if wanted.error.lower() not in job.error.lower():
        return False
    if not all(_is_in(word.lower(), job) for word in wanted.words):
        return False
    is_it = _has_age(wanted, job, now_ms) and _has_tags(wanted.tags, job)
    return is_it and has_arguments(wanted.arguments, job.body)


def _with(found: JobFilter, key: str, value: str) -> JobFilter:
    if key.startswith("args."):
        return replace(found, arguments=(*found.arguments, (key.removeprefix("args."), value)))
    take = _TAKE.get(key)
    if take is None:
        raise InvalidArgument(f"the search has {shown(key)}; accepted are {_KEYS}, and plain words")
    return take(found, value)


def duration_ms(argument: str, text: str) -> int:
    """A duration as people type it: 30s, 5m, 2h, 1d."""
    ms = _ms_in(text)
    if ms is None:
        raise InvalidArgument(f"{argument} is {shown(text)}; accepted are 30s, 5m, 2h, 1d")
    return ms


def _ms_in(text: str) -> int | None:
    number = text.rstrip("dhimns")
    unit = text[len(number) :]
    if not number.replace(".", "", 1).isdecimal() or not number.isascii() or unit not in _UNIT_MS:
        return None
    return int(float(number) * _UNIT_MS[unit])


def _state(found: JobFilter, value: str) -> JobFilter:
    state = _SAME.get(value, value)
    if state not in STATES:
        raise InvalidArgument(f"state is {shown(value)}; accepted are {', '.join(STATES)}")
    return replace(found, states=(*found.states, state))


def _age(found: JobFilter, value: str) -> JobFilter:
    sign, rest = (value[0], value[1:]) if value[:1] in {"<", ">"} else (">", value)
    ms = _ms_in(rest)
    if ms is None:
        raise InvalidArgument(f"age is {shown(value)}; accepted are >5m, <30s, >2h, >1d")
    return replace(found, older_than_ms=ms) if sign == ">" else replace(found, younger_than_ms=ms)


_TAKE: dict[str, Callable[[JobFilter, str], JobFilter]] = {
    "state": _state,
    "queue": lambda found, value: replace(found, queue=value),
    "task": lambda found, value: replace(found, task=value),
    "id": lambda found, value: replace(found, id_prefix=value),
    "error": lambda found, value: replace(found, error=value),
    "age": _age,
    "tag": lambda found, value: replace(found, tags=(*found.tags, value)),
}


def _is_in(word: str, job: Candidate) -> bool:
    return any(word in text.lower() for text in (job.id, job.task, job.error))


def _has_age(wanted: JobFilter, job: Candidate, now_ms: int) -> bool:
    if wanted.older_than_ms is None and wanted.younger_than_ms is None:
        return True
    if job.enqueued_at_ms is None:
        return False
    age_ms = now_ms - job.enqueued_at_ms
    is_old = wanted.older_than_ms is None or age_ms > wanted.older_than_ms
    return is_old and (wanted.younger_than_ms is None or age_ms < wanted.younger_than_ms)


def _has_tags(wanted: Sequence[str], job: Candidate) -> bool:
    if not wanted:
        return True
    if job.tags is None and not all(tag.encode() in (job.body or b"") for tag in wanted):
        return False  # seen without decoding: most bodies hold no such word
    found = tags_in(job.body) if job.tags is None else job.tags
    return all(tag in found for tag in wanted)


def tags_in(body: bytes | None) -> tuple[str, ...]:
    """The tags of a call; none where the body is not a call."""
    try:
        return visible_call(body).tags if body is not None else ()
    except (InvalidMessage, BodyHidden):
        return ()


def has_arguments(wanted: Sequence[tuple[str, str]], body: bytes | None) -> bool:
    """Whether the call in a body has all these arguments: paths below `args`, and texts of values."""
    if not wanted:
        return True
    if body is None:
        return False
    try:
        call = visible_call(body)
    except (InvalidMessage, BodyHidden):
        return False
    return all(value_at(path, call.args, call.kwargs) == text for path, text in wanted)
