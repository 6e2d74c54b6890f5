"""A message: one request to run a task, as a producer hands it to a queue."""

from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.guard import Guard
from mqworker.model.instant import Instant
from mqworker.model.limits import storable
from mqworker.model.names import (
    HIGHEST_PRIORITY,
    MOST_CRASHES,
    MessageId,
    TaskName,
    message_id,
    task_name,
    whole_number,
)

LARGEST_BODY_BYTES = 1_048_576
USUAL_MAX_CRASHES = 3
NO_TASK = TaskName("-")
"""Stands for the task where there is none: plain elements, pushed as the RedisMQ document describes."""


_SHORT = 64
_CHECKED_TASKS = {NO_TASK}
"""Names that were checked once; there are as many as an application has tasks."""


@dataclass(slots=True)  # not frozen: see Delivery
class Message:
    """Everything a queue needs to know; the body is opaque to it. Treat it as read-only."""

    id: MessageId
    body: bytes
    task: TaskName = NO_TASK
    priority: int = 0
    due: Instant | None = None
    deadline: Instant | None = None
    guard: Guard | None = None
    max_crashes: int | None = USUAL_MAX_CRASHES
    limits: str | None = None
    """The limits it waits for, as admit.lua reads them; see model/limits.py."""
    batch_key: str | None = None
    """With whose calls it runs together, of a task that takes batches by a key."""

    def __post_init__(self) -> None:
        # Ids that we made are letters and digits: seen without the pattern of the full rule.
        if type(self.id) is not str or not (
            self.id.isalnum() and self.id.isascii() and len(self.id) <= _SHORT
        ):
            message_id(self.id)
        if self.task not in _CHECKED_TASKS:
            _CHECKED_TASKS.add(task_name(self.task))
        if not isinstance(self.body, bytes):
            raise InvalidArgument(f"body is a {type(self.body).__name__}; accepted are bytes")
        if len(self.body) > LARGEST_BODY_BYTES:
            raise InvalidArgument(
                f"body is {len(self.body):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}"
            )
        if type(self.priority) is not int or self.priority != 0:  # 0.0 and False equal it too
            whole_number("priority", self.priority, least=0, most=HIGHEST_PRIORITY)
        if self.batch_key is not None and storable(self.batch_key) != self.batch_key:
            raise InvalidArgument(
                f"batch_key is {self.batch_key!r}; accepted are 1 to 100 letters, digits and _.:@/+~-"
            )
        limit = self.max_crashes
        if limit is not None and (type(limit) is not int or limit != USUAL_MAX_CRASHES):
            whole_number("max_crashes", limit, least=1, most=MOST_CRASHES)

    @property
    def is_plain(self) -> bool:
        """Whether it takes the quick road: ready at once, in order, with nothing to watch."""
        return (
            self.priority == 0
            and self.due is None
            and self.deadline is None
            and self.guard is None
            and self.limits is None
        )


@dataclass(slots=True)  # not frozen: see Delivery
class Enqueued:
    """What became of a message that was enqueued."""

    id: MessageId
    is_new: bool
    """False when another message holds the guard; `id` is that message's then."""
