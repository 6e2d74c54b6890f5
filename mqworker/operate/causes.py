"""Dead letters by cause: same queue, task, error and first own frame. One cause is usually one mistake."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mqworker.errors import MqworkerError
from mqworker.model.dead_letter import DeadLetter
from mqworker.model.names import MessageId
from mqworker.operate.system import System
from mqworker.queues.work.queue import WorkQueue
from mqworker.redaction import masked_text

MOST_LOOKED_AT = 20_000
_PAGE = 500
_SAMPLES = 5
_BUCKETS = 24
_ID_CHARACTERS = 10

_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+), in (\S+)', re.MULTILINE)
_FOREIGN = ("/site-packages/", "/lib/python", "/mqworker/", "<frozen")


@dataclass(frozen=True, slots=True)
class Cause:
    """Dead letters that died of the same."""

    id: str
    queue: str
    task: str
    error: str
    frame: str
    """file:line in function: the innermost frame that is neither Python's, a library's, nor ours."""
    reason: str
    count: int
    first_at_ms: int
    last_at_ms: int
    message: str
    """What the newest one says; secrets masked."""
    traceback: str
    ids: tuple[MessageId, ...]
    """The newest few."""
    spread: tuple[int, ...]
    """How many died in each part of the time from the first dead letter of all to the last."""


@dataclass(frozen=True, slots=True)
class Causes:
    """The groups, the largest first; and how many of how many dead letters were looked at."""

    causes: tuple[Cause, ...]
    looked_at: int
    total: int


def read_causes(system: System, queue: str | None = None, *, budget: int = MOST_LOOKED_AT) -> Causes:
    """The dead letters of a queue, or of all, in groups: the newest, up to the budget."""
    letters: list[tuple[str, DeadLetter]] = []
    total = 0
    for each in system.queues(queue):
        count = each.counts().dead
        total += count
        letters += [(each.name, letter) for letter in _newest(each, count, budget - len(letters))]
    return Causes(tuple(group(letters)), len(letters), total)


def group(letters: Iterable[tuple[str, DeadLetter]]) -> list[Cause]:
    """Dead letters of (queue, letter) in groups, the largest first. Pure."""
    groups: dict[tuple[str, str, str, str, str], list[DeadLetter]] = {}
    for queue, letter in letters:
        groups.setdefault(_key(queue, letter), []).append(letter)
    instants = [letter.buried_at_ms for some in groups.values() for letter in some]
    span = (min(instants), max(instants)) if instants else (0, 0)
    causes = [_cause(key, some, span) for key, some in groups.items()]
    return sorted(causes, key=lambda cause: (-cause.count, -cause.last_at_ms))


def own_frame(traceback: str) -> str:
    """The innermost own frame of a traceback as `file:line in function`; empty without one."""
    frames: list[tuple[str, str, str]] = _FRAME.findall(traceback)
    for file, line, function in reversed(frames):
        if not any(part in file for part in _FOREIGN):
            return f"{'/'.join(file.split('/')[-2:])}:{line} in {function}"
    return ""


def ids_of_cause(system: System, queue: str, cause: str) -> list[MessageId]:
    """All dead letters of a cause, however many; the oldest first."""
    work = system.queue(queue)
    found: list[MessageId] = []
    start = 0
    while letters := work.dead_letters(start, _PAGE):
        found += [letter.id for letter in letters if _id_of(_key(queue, letter)) == cause]
        start += len(letters)
    if not found:
        raise MqworkerError(f"no dead letter of queue {queue} has the cause {cause}: it may be gone already")
    return found


def _newest(queue: WorkQueue, count: int, budget: int) -> Iterator[DeadLetter]:
    stop = count
    least = max(0, count - max(0, budget))
    while stop > least:
        start = max(least, stop - _PAGE)
        yield from reversed(queue.dead_letters(start, stop - start))
        stop = start


def _key(queue: str, letter: DeadLetter) -> tuple[str, str, str, str, str]:
    task = str(letter.message.task) if letter.message else "?"
    return queue, task, letter.error, own_frame(letter.traceback), letter.reason


def _id_of(key: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(key).encode(errors="replace")).hexdigest()[:_ID_CHARACTERS]


def _cause(key: tuple[str, str, str, str, str], letters: list[DeadLetter], span: tuple[int, int]) -> Cause:
    queue, task, error, frame, reason = key
    letters = sorted(letters, key=lambda letter: letter.buried_at_ms, reverse=True)
    newest = letters[0]
    return Cause(
        id=_id_of(key),
        queue=queue,
        task=task,
        error=error,
        frame=frame,
        reason=reason,
        count=len(letters),
        first_at_ms=letters[-1].buried_at_ms,
        last_at_ms=newest.buried_at_ms,
        message=masked_text(newest.error_message),
        traceback=masked_text(newest.traceback),
        ids=tuple(letter.id for letter in letters[:_SAMPLES]),
        spread=_spread([letter.buried_at_ms for letter in letters], *span),
    )


def _spread(instants: list[int], first: int, last: int) -> tuple[int, ...]:
    counts = [0] * _BUCKETS
    for instant in instants:
        counts[min(_BUCKETS - 1, (instant - first) * _BUCKETS // max(1, last - first))] += 1
    return tuple(counts)
