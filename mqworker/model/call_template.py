"""Call templates: everything of a message but its id, kept until somebody without the app makes the call.

Workflows and schedules keep them in Redis, and the broker, which imports no application, makes messages of
them. The body stays as it was encoded where the task is known.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.assembled_call import assembled
from mqworker.model.envelope import with_arguments, with_first_argument
from mqworker.model.guard import Guard, GuardMode
from mqworker.model.instant import After, At, Instant, as_argument
from mqworker.model.keyring import SEALED
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, TaskName, queue_name


@dataclass(frozen=True, slots=True)
class CallTemplate:
    """A call to be made later, in the queue where it belongs."""

    queue: QueueName
    message: Message
    """With a stand-in for the id; its guard, if any, is the uniqueness of the task."""

    def called(
        self, message: MessageId, guard: Guard, first_argument: bytes | None = None, *, places: int = 1
    ) -> Message:
        """The message of one call; `first_argument` is a packed value for the place that None holds.

        With more `places` than one it is a packed array, whose items are for so many arguments.
        """
        body = self.message.body
        if body[:1] == SEALED:
            body = assembled(body, first_argument)
        elif first_argument is not None and places == 1:
            body = with_first_argument(body, first_argument)
        elif first_argument is not None:
            body = with_arguments(body, places, first_argument)
        it = self.message
        return Message(
            message,
            body,
            it.task,
            it.priority,
            it.due,
            it.deadline,
            guard,
            it.max_crashes,
            it.limits,
            it.batch_key,
        )

    def as_fields(self) -> dict[str, Any]:
        """Plain values (Any: texts, numbers and None), fit for JSON; what says nothing is left out."""
        it = self.message
        guard = None if it.guard is None else [str(it.guard.mode), it.guard.key, it.guard.ttl_ms]
        fields = {
            "queue": self.queue,
            "task": it.task,
            "body": base64.b64encode(it.body).decode(),
            "priority": it.priority or None,
            "due": as_argument(it.due) or None,
            "deadline": as_argument(it.deadline) or None,
            "max_crashes": it.max_crashes,
            "limits": it.limits,
            "batch_key": it.batch_key,
            "guard": guard,
        }
        return {name: value for name, value in fields.items() if value is not None}


def template_of(fields: Mapping[str, Any]) -> CallTemplate:
    """The template in plain values; raises `InvalidMessage` when they are not a template."""
    try:
        guard = fields.get("guard")
        message = Message(
            MessageId("template"),
            base64.b64decode(fields["body"], validate=True),
            TaskName(fields["task"]),
            fields.get("priority", 0),
            _instant(fields.get("due")),
            _instant(fields.get("deadline")),
            None if guard is None else Guard(GuardMode(guard[0]), guard[1], guard[2]),
            fields.get("max_crashes"),
            fields.get("limits"),
            fields.get("batch_key"),
        )
        return CallTemplate(queue_name(fields["queue"]), message)
    except (InvalidArgument, LookupError, TypeError, ValueError, AttributeError) as error:
        raise InvalidMessage(f"a stored call cannot be read: {error!r}") from error


def _instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    return After(int(text[1:])) if text.startswith("+") else At(int(text))
