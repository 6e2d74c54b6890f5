"""The keys of the SKMQ model, beside those of the work queues that hold its messages.

A message id of the protocol means the same in all apps, and feedback names nothing else: so there is one
index for all, in a slot of its own. It says where a message is, never whether it lives: only its queue knows.
"""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.names import QueueName
from mqworker.queues.work.keys import WorkQueueKeys


@dataclass(frozen=True, slots=True)
class SkmqKeys:
    """The keys that all apps share."""

    namespace: str

    @property
    def index(self) -> str:
        r"""hash: msgid -> 'at_ms queue id [consumer fence]'; for a topic's copy: msgid, line feed, key."""
        return f"{self.namespace}:{{skmq}}:messages"

    @property
    def queues(self) -> str:
        """set: the queues of all apps that ever had a message or a recipient."""
        return f"{self.namespace}:{{skmq}}:queues"

    @property
    def homes(self) -> str:
        """hash: key of a recipient -> the queue it is registered at."""
        return f"{self.namespace}:{{skmq}}:homes"


@dataclass(frozen=True, slots=True)
class SkmqQueueKeys:
    """The keys of one app, in the slot of its queue."""

    work: WorkQueueKeys

    @classmethod
    def of(cls, namespace: str, queue: QueueName) -> SkmqQueueKeys:
        """All keys of an app's queue."""
        return cls(WorkQueueKeys.of(namespace, queue))

    @property
    def recipients(self) -> str:
        """hash: key -> 'status weight host port id', status alive or lost."""
        return self.work.named("recipients")

    @property
    def assigned(self) -> str:
        """hash: key -> how many messages it was given since the last one registered."""
        return self.work.named("assigned")

    @property
    def copies(self) -> str:
        """hash: id of a topic's message -> 'chosen key…', 'stored key…' once the copies are in the queue."""
        return self.work.named("copies")
