"""Sending: from steps to commands, and from replies to answers. Pure; the stores move the bytes.

In the order of use: a *lane* numbers a call, a *request* is one step until it has its answer, an *exchange*
is the round trip of one caller, a *group commit* that of many.

Every script is repeatable: the server recognises numbered calls, the others change nothing the second time.
So a step whose reply was lost is sent again, with the same numbering.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from mqworker.errors import (
    MqworkerError,
    NotSupported,
    QueueFull,
    StaleCall,
    StoreRefused,
    StoreUnavailable,
    UnknownQueue,
)
from mqworker.store.command import NO_SCRIPT, Command, Reply, ReplyError
from mqworker.store.procedure import Commands, Step
from mqworker.store.script import Call, RawReply


class Lane:
    """The right to make one call at a time under a name that nobody else uses.

    The server keeps the newest number of each lane (parts/calls.lua), so remembering costs the same for
    one message and for a million, and the record outlives the messages. Numbers only go up: a number that is
    not above the newest was sent before, and may arrive late (decision 13).
    """

    __slots__ = ("name", "number")

    def __init__(self) -> None:
        self.name = secrets.token_urlsafe(9)
        self.number = 0

    def next_call(self) -> tuple[str, int]:
        """The numbering of a new call; the same call sent again keeps it."""
        self.number += 1
        return self.name, self.number


class LanePool:
    """The free lanes of one process. A forked child leaves its parent's lanes alone."""

    def __init__(self) -> None:
        self._free: deque[Lane] = deque()
        self._pid = os.getpid()

    def take(self) -> Lane:
        """A lane that no other call uses. `deque` makes this safe between threads."""
        if self._pid != os.getpid():
            self._free, self._pid = deque(), os.getpid()
        try:
            return self._free.pop()
        except IndexError:
            return Lane()

    def give_back(self, lane: Lane) -> None:
        """Only after the call was answered: one that was given up may still arrive; its lane is dropped."""
        self._free.append(lane)


class Request:
    """One step with its numbering, until it has its answer.

    A script is sent by its hash. A server that does not know the hash (after a restart, a failover or SCRIPT
    FLUSH) answers NOSCRIPT and is sent the source.
    """

    __slots__ = ("_has_source", "_numbering", "_replies", "_step")

    def __init__(self, step: Step, numbering: tuple[str, int | str] | None = None) -> None:
        self._step = step
        self._numbering = numbering
        self._has_source = False
        self._replies: Sequence[Reply] = ()

    @property
    def key(self) -> str | None:
        """A key of the step, by which a cluster finds the node."""
        step = self._step
        return step.keys[0] if isinstance(step, Call) else step.key

    def commands(self) -> Sequence[Command]:
        """What to send now."""
        step = self._step
        if isinstance(step, Commands):
            return step.commands
        if self._has_source:
            return (step.command_with_source(self._numbering),)
        return (step.command(self._numbering),)

    def take(self, replies: Sequence[Reply]) -> bool:
        """Note the replies; False when the step has to be sent again, with its source."""
        if not self._has_source and isinstance(self._step, Call) and _is_unknown_script(replies[0]):
            self._has_source = True
            return False
        self._replies = replies
        return True

    def answer(self) -> RawReply:
        """The replies of commands as they came, or the decoded reply of a script; raises its refusal."""
        step = self._step
        return list(self._replies) if isinstance(step, Commands) else decoded(step, self._replies[0])


class Exchange:
    """One round trip of one caller: calls of one queue, in order. Raises the first refusal."""

    def __init__(self, calls: Sequence[Call[Any]], lanes: LanePool) -> None:
        self._lanes = lanes
        self._taken: list[Lane] = []
        self.key = calls[0].keys[0]
        """A key of the calls, by which a cluster finds the node."""
        self._requests = [Request(call, self._number(call)) for call in calls]
        self._open = self._requests

    def commands(self) -> list[Command]:
        """What to send now: everything that has no answer yet."""
        return [command for request in self._open for command in request.commands()]

    def take_replies(self, replies: Sequence[Reply]) -> bool:
        """Note the answers; True when none is missing."""
        pairs = zip(self._open, replies, strict=True)
        self._open = [request for request, reply in pairs if not request.take((reply,))]
        return not self._open

    def take_outcome(self, replies: Sequence[Reply | MqworkerError]) -> list[Any] | MqworkerError | None:
        """Note the answers of a round trip that was shared: the results, the trouble, or None to go on."""
        answers = _answers_or_trouble(replies)
        if isinstance(answers, MqworkerError):
            return answers
        try:
            return self.results() if self.take_replies(answers) else None
        except MqworkerError as refusal:
            return refusal

    def results(self) -> list[Any]:
        """The decoded answers; raises the first refusal."""
        for lane in self._taken:
            self._lanes.give_back(lane)
        return [request.answer() for request in self._requests]

    def _number(self, call: Call[Any]) -> tuple[str, int] | None:
        if not call.is_numbered:
            return None
        lane = self._lanes.take()
        self._taken.append(lane)
        return lane.next_call()


@dataclass(slots=True)
class Entry:
    """One caller's next step in a group commit; `outcome` is its answer or its trouble, once it has one.

    Callers bring their own numbering, so that whoever takes over from a process that was killed can send the
    same step again: the server recognises it.
    """

    step: Step
    lane: str
    number: int | str
    """As text, `number>earlier`: to be carried out only if the call before it in the lane was that one."""
    # Any: the answer has the type of the step.
    outcome: Any = None
    is_answered: bool = False

    def refuse(self, error: MqworkerError) -> None:
        """Note trouble as the outcome."""
        self.outcome, self.is_answered = error, True


class GroupCommit:
    """One round trip of many callers: the trouble of one leaves the others alone."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._open = [(entry, _request_of(entry)) for entry in entries]

    @property
    def is_complete(self) -> bool:
        """Whether every entry has its outcome."""
        return not self._open

    def commands(self) -> tuple[list[Command], list[str | None]]:
        """What to send now, and the key of each command."""
        pairs = [(command, request.key) for _, request in self._open for command in request.commands()]
        return [command for command, _ in pairs], [key for _, key in pairs]

    def take_replies(self, replies: Sequence[Reply | MqworkerError]) -> None:
        """Note the answers, those of each entry in its place."""
        rest = iter(replies)
        self._open = [
            (entry, request)
            for entry, request in self._open
            if not _take(entry, request, list(islice(rest, len(request.commands()))))
        ]


def _request_of(entry: Entry) -> Request:
    is_numbered = isinstance(entry.step, Call) and entry.step.is_numbered
    return Request(entry.step, (entry.lane, entry.number) if is_numbered else None)


def _take(entry: Entry, request: Request, replies: Sequence[Reply | MqworkerError]) -> bool:
    answers = _answers_or_trouble(replies)
    if isinstance(answers, MqworkerError):
        entry.refuse(answers)
        return True
    if not request.take(answers):
        return False
    try:
        entry.outcome = request.answer()
    except MqworkerError as refusal:
        entry.outcome = refusal
    entry.is_answered = True
    return True


def _answers_or_trouble(replies: Sequence[Reply | MqworkerError]) -> list[Reply] | MqworkerError:
    answers: list[Reply] = []
    for reply in replies:
        if isinstance(reply, MqworkerError):
            return reply
        answers.append(reply)
    return answers


def _is_unknown_script(reply: Reply) -> bool:
    return isinstance(reply, ReplyError) and reply.code == NO_SCRIPT


UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What reading foreign data may raise, whatever it is read as."""
_LONGEST_REFUSAL = 300


def decoded(call: Call[Any], reply: Reply) -> RawReply:
    """What a reply means; raises the refusal that it may be."""
    if isinstance(reply, ReplyError):
        raise _refusal(call, reply)
    try:
        return call.decode(reply)
    except MqworkerError:
        raise  # an answer that is a refusal
    except UNREADABLE as error:
        queue = _queue_of(call)
        raise StoreRefused(
            f"{call.script.name} on queue {queue!r}: its answer cannot be read, another program wrote there"
            f" ({type(error).__name__}: {error})"[:_LONGEST_REFUSAL],
            code="UNREADABLE",
        ) from error


def _queue_of(call: Call[Any]) -> str:
    return call.keys[0].partition("{")[2].partition("}")[0]


def _refusal(call: Call[Any], error: ReplyError) -> MqworkerError:
    queue = _queue_of(call)
    match error.code:
        case "MQW_FULL":
            return QueueFull(f"queue {queue!r} is full: {error.text}; nothing was stored")
        case "MQW_STALE":
            return StaleCall(
                f"{call.script.name} on queue {queue!r}: {error.text}; this copy changed nothing"
            )
        case "MQW_MODEL":
            return NotSupported(
                f"queue {queue!r} is {error.text}, and its messages come by the clients of that model; push "
                "takes names of work queues; nothing was stored"
            )
        case "MQW_EMPTYKEY":
            return UnknownQueue(f"there is no queue {queue!r}")
        case "NOSCRIPT":  # although it was sent the source
            return StoreUnavailable("Redis forgets scripts as they are sent", maybe_executed=False)
        case _:
            return StoreRefused(f"{call.script.name} on queue {queue!r}: {error.code} {error.text}")
