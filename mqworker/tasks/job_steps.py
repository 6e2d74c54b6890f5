"""What a job asks of its queue, step by step: once for threads and for event loops."""

from __future__ import annotations

from mqworker.model.names import MessageId
from mqworker.queues.work.steps import WorkQueueSteps
from mqworker.store.procedure import Procedure, Read
from mqworker.tasks.outcome import JobStatus, Outcome, decode_outcome
from mqworker.tasks.running.progress import Progress, decode_progress, progress_key

_STATUS_BY_STATE = {
    "ready": JobStatus.WAITING,
    "delayed": JobStatus.DELAYED,
    "leased": JobStatus.RUNNING,
    "delivered": JobStatus.RUNNING,
    "succeeded": JobStatus.SUCCEEDED,
    "cancelled": JobStatus.CANCELLED,
    "expired": JobStatus.EXPIRED,
    "dead": JobStatus.FAILED,
}
_CANCEL_TRIES = 3


class JobSteps:
    """The procedures of all jobs of one queue; pure, as long as nobody follows them."""

    def __init__(self, queue: WorkQueueSteps) -> None:
        self._queue = queue

    def status(self, message: MessageId) -> Procedure[JobStatus]:
        """Where it is now."""
        found = yield from self._queue.find(message)
        return _STATUS_BY_STATE.get(found.state, JobStatus.UNKNOWN)

    def cancel(self, message: MessageId) -> Procedure[bool]:
        """Take it out while it waits, ask for a stop where it runs; False when it has ended."""
        for _ in range(_CANCEL_TRIES):  # it may change hands between two looks
            found = yield from self._queue.find(message)
            if found.state == "leased":
                yield self._queue.calls.request_cancel(message)
                # Whoever held it may have lost it just before: then it stands in line, to be taken out.
                if (yield from self._queue.find(message)).state in {"leased", "cancelled"}:
                    return True
                continue
            if found.state not in {"ready", "delayed"}:
                return False
            if (yield from self._queue.cancel(message)):
                return True
        return False

    def retry(self, message: MessageId) -> Procedure[bool]:
        """Put it back in line; False when it is no dead letter."""
        revived = yield from self._queue.revive([message])
        return revived == [message]

    def progress(self, message: MessageId) -> Procedure[Progress | None]:
        """What its task last said."""
        keys = self._queue.calls.keys
        text = (yield Read((("GET", progress_key(keys, message)),), keys.meta))[0]
        return decode_progress(text) if isinstance(text, bytes) else None

    def outcome(self, message: MessageId) -> Procedure[Outcome | None]:
        """How it ended; None when it has not."""
        reply = (yield self._queue.calls.wait([message]))[0]
        return None if reply is None else decode_outcome(message, reply)
