"""Calls of a task that is known by its name alone, each with an id of its own: bulk work from outside.

The program that enqueues need not have the application installed. So nobody checks the arguments against the
task's signature, and its options (priority, rate, time-out) do not apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from mqworker.errors import InvalidArgument
from mqworker.model.envelope import encode_call, encode_plain_calls, explain
from mqworker.model.guard import chosen_id_guard
from mqworker.model.message import LARGEST_BODY_BYTES, USUAL_MAX_CRASHES, Message
from mqworker.model.names import MessageId, shown, task_name
from mqworker.model.value_codec import NotAccepted, Value
from mqworker.queues.work.queue import WorkQueue

BATCH: Final = 1_000


class NamedCalls:
    """The way into one queue for calls of one task."""

    def __init__(
        self,
        work: WorkQueue,
        task: str,
        *,
        max_crashes: int | None = USUAL_MAX_CRASHES,
        max_message_bytes: int = LARGEST_BODY_BYTES,
    ) -> None:
        self._work = work
        self._task = task_name(task)
        self._max_crashes = max_crashes
        self._max_message_bytes = max_message_bytes

    def enqueue(self, calls: Iterable[tuple[str, Mapping[str, Value]]]) -> int:
        """Store calls, each an id and arguments by name; how many were new.

        An id that is in the queue, or was settled within the setting dedup_window_s, is not stored again. All
        arguments are checked before any is stored.
        """
        outcome = self._work.enqueue(*[self._message(call_id, arguments) for call_id, arguments in calls])
        return sum(each.is_new for each in outcome)

    def _message(self, call_id: str, arguments: Mapping[str, Value]) -> Message:
        if not isinstance(call_id, str):
            raise InvalidArgument(f"id is {shown(call_id)}; accepted is a text, for each call its own")
        body = named_call_body(self._task, arguments)
        if len(body) > self._max_message_bytes:
            raise InvalidArgument(
                f"the arguments of {self._task} {call_id} are {len(body):,} bytes; accepted are up to "
                f"{self._max_message_bytes:,} (the setting max_message_bytes)"
            )
        wanted = MessageId(call_id)
        return Message(wanted, body, self._task, guard=chosen_id_guard(wanted), max_crashes=self._max_crashes)


def named_call_body(task: str, arguments: Mapping[str, Value]) -> bytes:
    """The body of a call with its arguments by name; raises InvalidArgument for what cannot be sent."""
    try:
        return encode_call((), arguments)
    except NotAccepted as refused:
        raise explain(refused, task, arguments) from refused


def plain_call_bodies(names: Sequence[str], columns: Sequence[Iterable[Value]]) -> list[bytes]:
    """The same for many calls, column by column, of plain values that the caller has checked."""
    return encode_plain_calls(names, columns)
