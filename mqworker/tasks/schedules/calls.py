"""Calls of the scripts of schedules: what is sent, and how the answer is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqworker.model.names import QueueName
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.tasks.schedules.keys import ScheduleKeys
from mqworker.tasks.schedules.stored import ScheduleSpec, stored_words

script = scripts_of(__package__)

CLAIM_MS = 2_000
"""What a broker took and did not finish is due again after that; far below what counts as missed."""
FIRE_WITHIN_MS = 60_000
"""From a look to a firing at most: a broker that was stopped for longer looks again."""
FORGET_AFTER_MS = 120_000
"""As in parts/keys.lua: then no broker can fire by a look from before a deletion."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is due, for one broker."""

    now_ms: int
    next_in_ms: int | None
    """Until another one is due."""
    to_forget: tuple[tuple[bytes, int], ...]
    """`<queue> <name>`, and the score under which it stands."""
    entries: tuple[tuple[bytes, bytes, bytes], ...]
    """Name, stored text and mark."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What became of one schedule in a look."""

    name: str
    revision: bytes = b""
    next_ms: int | None = None
    """When to look again; None leaves it as it is."""
    mark: str = ""
    firings: str = ""


class ScheduleCalls:
    """Of the schedules of one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.keys = ScheduleKeys.of(namespace)

    def store(self, owner: str, specs: Sequence[ScheduleSpec]) -> Call[list[tuple[str, str]]]:
        """Write schedules of an owner: an app's in place of all it had. Those of others come back."""
        words = [word for spec in specs for word in stored_words(spec)]
        return Call(script("store_schedules"), self.keys.shared, (owner, *words), _pairs)

    def delete(self, name: str, owner: str) -> Call[str | None]:
        """Remove one: "" when it is gone, its owner when that is another, None when there was none."""
        return Call(script("delete_schedule"), self.keys.shared, (name, owner), _owner_or_none)

    def pause(self, name: str) -> Call[int]:
        """Fire nothing that comes due from now on: 1 done, 0 was so, -1 none."""
        return Call(script("pause_schedule"), self.keys.shared, (name, 1), int)

    def resume(self, name: str) -> Call[int]:
        """Fire again from now on: 1 done, 0 was so, -1 none."""
        return Call(script("pause_schedule"), self.keys.shared, (name, 0), int)

    def look(self, most: int) -> Call[Look]:
        """Take what is due."""
        return Call(script("look_schedules"), self.keys.shared, (most, CLAIM_MS), _look)

    def advance(self, advances: Sequence[Advance], forgotten: Sequence[tuple[bytes, int]] = ()) -> Call[int]:
        """Say what became of it."""
        pairs = [word for pair in forgotten for word in pair]
        words = [word for each in advances for word in _advance_words(each)]
        arguments = (len(forgotten), *pairs, *words)
        return Call(script("advance_schedules"), self.keys.shared, arguments, int)

    def forget(self, queue: str, name: str, deleted_ms: int) -> Call[int]:
        """Drop what a queue noted of a schedule that is gone from there."""
        ticks = WorkQueueKeys.of(self.namespace, QueueName(queue)).named("ticks")
        return Call(script("forget_tick"), (ticks,), (name, deleted_ms), int)


def _advance_words(advance: Advance) -> tuple[str | bytes | int, ...]:
    next_ms = "" if advance.next_ms is None else advance.next_ms
    return advance.name, advance.revision, next_ms, advance.mark, advance.firings


def _look(reply: RawReply) -> Look:
    now_ms, next_in_ms, to_forget, entries = reply
    return Look(
        now_ms,
        None if next_in_ms < 0 else next_in_ms,
        tuple(zip(to_forget[::2], map(int, to_forget[1::2]), strict=True)),
        tuple(zip(entries[::3], entries[1::3], entries[2::3], strict=True)),
    )


def _pairs(reply: RawReply) -> list[tuple[str, str]]:
    texts = [each.decode(errors="replace") for each in reply]
    return list(zip(texts[::2], texts[1::2], strict=True))


def _owner_or_none(reply: RawReply) -> str | None:
    return None if reply is None else str(reply.decode(errors="replace"))
