"""What an RSMQ client does, step by step: checks and batches around the calls, once for both stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from mqworker.model.names import whole_number
from mqworker.queues.rsmq import arguments as accept
from mqworker.queues.rsmq.arguments import RsmqInvalidArgument
from mqworker.queues.rsmq.calls import OutgoingMessage, RsmqAttributes, RsmqCalls, RsmqMessage, RsmqOptions
from mqworker.queues.rsmq.keys import registry_key
from mqworker.store.procedure import Commands, Procedure

LARGEST_BATCH = 1_000
"""Messages in one call: the arguments must fit Lua's stack, and nobody else should wait long for it."""

_LARGEST_BATCH_BYTES = 4 * 1024 * 1024

ItemT = TypeVar("ItemT")


class RsmqSteps:
    """The procedures of one namespace; pure, as long as nobody follows them."""

    def __init__(self, options: RsmqOptions) -> None:
        self.calls = RsmqCalls(options)
        self._registry = registry_key(options.namespace)

    def create_queue(self, queue: str, vt: int, delay: int, maxsize: int) -> Procedure[None]:
        """Make a queue."""
        yield self.calls.create_queue(
            accept.queue_name(queue),
            accept.seconds("vt", vt),
            accept.seconds("delay", delay),
            accept.maxsize(maxsize),
        )

    def list_queues(self) -> Procedure[list[str]]:
        """All names, also those that we would refuse."""
        names: list[bytes] = (yield Commands((("SMEMBERS", self._registry),), self._registry))[0]
        return sorted(name.decode(errors="backslashreplace") for name in names)

    def delete_queue(self, queue: str) -> Procedure[None]:
        """Delete a queue and its messages."""
        yield self.calls.delete_queue(accept.queue_name(queue))

    def get_queue_attributes(self, queue: str) -> Procedure[RsmqAttributes]:
        """What is known about a queue."""
        attributes: RsmqAttributes = yield self.calls.get_attributes(accept.queue_name(queue))
        return attributes

    def set_queue_attributes(
        self, queue: str, vt: int | None, delay: int | None, maxsize: int | None
    ) -> Procedure[RsmqAttributes]:
        """Change attributes; that something is to be set is asked before whether there is such a queue."""
        accept.queue_name(queue)
        values: dict[str, int] = {}
        if vt is not None:
            values["vt"] = accept.seconds("vt", vt)
        if delay is not None:
            values["delay"] = accept.seconds("delay", delay)
        if maxsize is not None:
            values["maxsize"] = accept.maxsize(maxsize)
        if not values:
            raise RsmqInvalidArgument("noAttributeSupplied", "No attribute was supplied")
        attributes: RsmqAttributes = yield self.calls.set_attributes(queue, values)
        return attributes

    def send_messages(
        self, queue: str, messages: Sequence[bytes | str], delay: int | None
    ) -> Procedure[list[str]]:
        """Send messages, a batch at a time."""
        accept.queue_name(queue)
        due = "" if delay is None else f"+{accept.seconds('delay', delay) * 1000}"
        outgoing = [OutgoingMessage(accept.message_bytes(message), due) for message in messages]
        return (yield from self.send_outgoing(queue, outgoing))

    def send_outgoing(self, queue: str, outgoing: Sequence[OutgoingMessage]) -> Procedure[list[str]]:
        """Send messages, each with a time of its own."""
        accept.queue_name(queue)
        ids: list[str] = []
        for batch in _batches(outgoing):
            ids += yield self.calls.send(queue, batch)
        return ids

    def receive_messages(self, queue: str, count: int, vt: int | None) -> Procedure[list[RsmqMessage]]:
        """Receive up to `count`."""
        accept.queue_name(queue)
        whole_number("count", count, least=1, most=LARGEST_BATCH)
        hidden_ms = None if vt is None else accept.seconds("vt", vt) * 1000
        received: list[RsmqMessage] = yield self.calls.receive(queue, count, hidden_ms)
        return received

    def receive_message(self, queue: str, vt: int | None) -> Procedure[RsmqMessage | None]:
        """Receive one; None when none is visible."""
        received = yield from self.receive_messages(queue, 1, vt)
        return received[0] if received else None

    def pop_message(self, queue: str) -> Procedure[RsmqMessage | None]:
        """Receive and delete one; None when none is visible."""
        popped: list[RsmqMessage] = yield self.calls.pop(accept.queue_name(queue))
        return popped[0] if popped else None

    def delete_messages(self, queue: str, ids: Sequence[str]) -> Procedure[list[bool]]:
        """Delete messages, a batch at a time."""
        accept.queue_name(queue)
        for message in ids:
            accept.message_id(message)
        deleted: list[bool] = []
        for batch in chunks(ids):
            deleted += yield self.calls.delete(queue, batch)
        return deleted

    def delete_message(self, queue: str, message: str) -> Procedure[bool]:
        """Delete one; False when there is none, or no such queue."""
        return (yield from self.delete_messages(queue, [message]))[0]

    def change_message_visibility(self, queue: str, message: str, vt: int) -> Procedure[bool]:
        """Hide a message for so long from now."""
        is_there: bool = yield self.calls.change_visibility(
            accept.queue_name(queue), accept.message_id(message), accept.seconds("vt", vt) * 1000
        )
        return is_there


def chunks(items: Sequence[ItemT]) -> Iterator[Sequence[ItemT]]:
    """Parts of at most a batch."""
    for start in range(0, len(items), LARGEST_BATCH):
        yield items[start : start + LARGEST_BATCH]


def _batches(outgoing: Sequence[OutgoingMessage]) -> Iterator[Sequence[OutgoingMessage]]:
    batch: list[OutgoingMessage] = []
    batch_bytes = 0
    for each in outgoing:
        size = len(each.message)
        if batch and (len(batch) == LARGEST_BATCH or batch_bytes + size > _LARGEST_BATCH_BYTES):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(each)
        batch_bytes += size
    if batch:
        yield batch
