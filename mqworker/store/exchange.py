"""One exchange with a server: calls out, replies back. Pure; the sync and the async store send the bytes.

Every script is repeatable: numbered calls are recognised by the server, the others change nothing the second
time. So an exchange whose reply was lost is simply sent again, with the same numbering.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mqworker.errors import MqworkerError, NotSupported, QueueFull, StaleCall, StoreRefused, UnknownQueue
from mqworker.store.command import NO_SCRIPT, Command, Reply, ReplyError
from mqworker.store.lanes import Lane, LanePool
from mqworker.store.script import Call, RawReply


class Exchange:
    """The state of one round trip: what is still to be asked, and what was answered."""

    def __init__(self, calls: Sequence[Call[Any]], lanes: LanePool) -> None:
        self._calls = calls
        self._lanes = lanes
        self._taken: list[Lane] = []
        self._numbering = [self._number(call) for call in calls]
        self._replies: dict[int, Reply] = {}
        self._without_source = True

    @property
    def key(self) -> str:
        """A key of the calls, by which a cluster finds the node."""
        return self._calls[0].keys[0]

    def commands(self) -> list[Command]:
        """What to send now: everything that has no answer yet."""
        return [
            self._calls[i].command(self._numbering[i])
            if self._without_source
            else self._calls[i].command_with_source(self._numbering[i])
            for i in self._open()
        ]

    def take_replies(self, replies: Sequence[Reply]) -> bool:
        """Note the answers; True when none is missing. A server that forgot a script is sent it in full."""
        for i, reply in zip(self._open(), replies, strict=True):
            if not (isinstance(reply, ReplyError) and reply.code == NO_SCRIPT):
                self._replies[i] = reply
        self._without_source = False
        return len(self._replies) == len(self._calls)

    def take_outcome(self, replies: Sequence[Reply | MqworkerError]) -> list[Any] | MqworkerError | None:
        """Note the answers of a round trip that was shared: the results, the trouble, or None to go on."""
        answers: list[Reply] = []
        for reply in replies:
            if isinstance(reply, MqworkerError):
                return reply
            answers.append(reply)
        try:
            return self.results() if self.take_replies(answers) else None
        except MqworkerError as refusal:
            return refusal

    def results(self) -> list[Any]:
        """The decoded answers; raises the first refusal."""
        for lane in self._taken:
            self._lanes.give_back(lane)
        return [decoded(call, self._replies[i]) for i, call in enumerate(self._calls)]

    def _open(self) -> list[int]:
        return [i for i in range(len(self._calls)) if i not in self._replies]

    def _number(self, call: Call[Any]) -> tuple[str, int] | None:
        if not call.is_numbered:
            return None
        lane = self._lanes.take()
        self._taken.append(lane)
        return lane.next_call()


UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError)
"""What reading foreign data may come to, whatever it is read as."""
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
            f"{call.script.name} on queue {queue!r}: its answer cannot be read, a foreign hand wrote there"
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
        case _:
            return StoreRefused(f"{call.script.name} on queue {queue!r}: {error.code} {error.text}")
