"""A delivery: one hand-over of a message to a consumer, under a lease that its fence proves."""

from dataclasses import dataclass

from mqworker.model.names import MessageId, TaskName


@dataclass(
    slots=True
)  # not frozen: a hundred thousand are made each second, and frozen ones cost twice as much
class Delivery:
    """A message as a consumer holds it. Treat it as read-only."""

    fence: int
    id: MessageId
    task: TaskName
    body: bytes
    enqueued_at_ms: int
    priority: int = 0
    deliveries: int = 0
    failures: int = 0
    crashes: int = 0
    max_crashes: int | None = 3
    deadline_at_ms: int | None = None
    start_by_ms: int = 0
    """Until when its permit is valid, by the monotonic clock of this host; 0: it needs none."""
    losses: int = 0
    """How often its consumer vanished with it, since it ended last."""
    is_suspect: bool = False
    """Whether it ran beside others when their worker died: it runs alone until it has ended once."""
    tags: tuple[str, ...] = ()
    """From the body, as soon as whoever runs it has opened that."""
    sealed: bytes = b""
    """The body as it is stored, where that had to be opened; `body` is what was inside."""
    offloaded: str = ""
    """The name of the blob that holds its arguments, where they are kept elsewhere."""

    @property
    def attempt(self) -> int:
        """Which hand-over of the message this is, from 1."""
        return self.deliveries + 1


@dataclass(frozen=True, slots=True)
class UnreadableDelivery:
    """Bytes in the line that are not a record: somebody else wrote them. To be buried, never run."""

    fence: int
    record: bytes
    problem: str
