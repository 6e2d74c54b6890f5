"""Group commit: steps of many callers in one round trip, each with an outcome of its own. Pure.

An `Exchange` belongs to one caller and raises the first refusal; here the trouble of one is nothing to the
others. The callers bring their own numbering, so that whoever takes over from a process that was killed can
send the same step again: the server recognises it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.store.command import NO_SCRIPT, Command, Reply, ReplyError
from mqworker.store.exchange import decoded
from mqworker.store.procedure import Read, Step
from mqworker.store.script import Call


@dataclass(slots=True)
class Entry:
    """One caller's next step; `outcome` is its answer or its trouble, once it has one."""

    step: Step
    lane: str
    number: int
    # Any: the answer has the type of the step.
    outcome: Any = None
    is_answered: bool = False

    def refuse(self, error: MqworkerError) -> None:
        """Note trouble as the outcome."""
        self.outcome, self.is_answered = error, True


class GroupCommit:
    """The state of one group: what is still to be asked."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._open = list(entries)
        self._with_source = False

    @property
    def is_complete(self) -> bool:
        """Whether every entry has its outcome."""
        return not self._open

    def commands(self) -> tuple[list[Command], list[str | None]]:
        """What to send now, and the key of each command."""
        commands: list[Command] = []
        keys: list[str | None] = []
        for entry in self._open:
            some = self._commands_of(entry)
            commands += some
            keys += [_key_of(entry.step)] * len(some)
        return commands, keys

    def take_replies(self, replies: Sequence[Reply | MqworkerError]) -> None:
        """Note the answers. A server that forgot a script is sent it in full, once."""
        start, again = 0, []
        for entry in self._open:
            stop = start + _length_of(entry.step)
            if not self._take(entry, replies[start:stop]):
                again.append(entry)
            start = stop
        self._open = again
        self._with_source = True

    def _take(self, entry: Entry, replies: Sequence[Reply | MqworkerError]) -> bool:
        answers = [reply for reply in replies if not isinstance(reply, MqworkerError)]
        for reply in replies:
            if isinstance(reply, MqworkerError):
                entry.refuse(reply)
                return True
        first = answers[0]
        if isinstance(first, ReplyError) and first.code == NO_SCRIPT:
            if self._with_source:
                entry.refuse(StoreUnavailable("Redis forgets scripts as they are sent", maybe_executed=False))
            return self._with_source
        try:
            step = entry.step
            entry.outcome = answers if isinstance(step, Read) else decoded(step, first)
        except MqworkerError as refusal:
            entry.outcome = refusal
        entry.is_answered = True
        return True

    def _commands_of(self, entry: Entry) -> Sequence[Command]:
        step = entry.step
        if isinstance(step, Read):
            return step.commands
        numbering = (entry.lane, entry.number) if step.is_numbered else None
        return (step.command_with_source(numbering) if self._with_source else step.command(numbering),)


def _key_of(step: Step) -> str | None:
    return step.keys[0] if isinstance(step, Call) else step.key


def _length_of(step: Step) -> int:
    return len(step.commands) if isinstance(step, Read) else 1
