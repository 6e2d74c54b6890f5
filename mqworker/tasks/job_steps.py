"""What a job asks of its queue, step by step: once for threads and for event loops."""

from __future__ import annotations

from enum import Enum

from mqworker.model.names import MessageId
from mqworker.queues.work.steps import WAITING, WorkQueueSteps
from mqworker.store.procedure import Commands, Procedure
from mqworker.tasks.outcome import JobStatus, Outcome, decode_outcome
from mqworker.tasks.payloads import Payloads
from mqworker.tasks.running.progress import Progress, decode_progress, progress_key

_STATUS_BY_STATE = {
    "ready": JobStatus.WAITING,
    "delayed": JobStatus.DELAYED,
    "limited": JobStatus.LIMITED,
    "leased": JobStatus.RUNNING,
    "delivered": JobStatus.RUNNING,
    "succeeded": JobStatus.SUCCEEDED,
    "cancelled": JobStatus.CANCELLED,
    "expired": JobStatus.EXPIRED,
    "dead": JobStatus.FAILED,
}
_CANCEL_TRIES = 3


class Cancelling(Enum):
    """What came of the wish to cancel a job."""

    CANCELLED = "cancelled"
    ASKED = "asked to stop"
    """Somebody runs it: whether it stops is seen later."""
    ENDED = "ended"


class JobSteps:
    """The procedures of all jobs of one queue; pure, as long as nobody follows them."""

    def __init__(self, queue: WorkQueueSteps, payloads: Payloads | None = None) -> None:
        self._queue = queue
        self._payloads = payloads

    def status(self, message: MessageId) -> Procedure[JobStatus]:
        """Where it is now."""
        found = yield from self._queue.find(message)
        return _STATUS_BY_STATE.get(found.state, JobStatus.UNKNOWN)

    def cancel(self, message: MessageId, *, kill: bool = False) -> Procedure[Cancelling]:
        """Take it out while it waits, ask for a stop where it runs; `kill` ends the worker there."""
        calls = self._queue.calls
        request = calls.request_kill if kill else calls.request_cancel
        for _ in range(_CANCEL_TRIES):  # another consumer may take it between two looks
            found = yield from self._queue.find(message)
            if found.state == "leased":
                yield request(message)
                # Whoever held it may have lost it just before: then it stands in line, to be taken out.
                state = (yield from self._queue.find(message)).state
                if state in {"leased", "cancelled"}:
                    return Cancelling.ASKED if state == "leased" else Cancelling.CANCELLED
                continue
            if found.state not in WAITING:
                return Cancelling.ENDED
            if (yield from self._queue.cancel(message)):
                return Cancelling.CANCELLED
        return Cancelling.ASKED  # it goes from one to the next too quickly; ask once more

    def retry(self, message: MessageId) -> Procedure[bool]:
        """Put it back in line; False when it is not a dead letter."""
        revived = yield from self._queue.revive([message])
        return revived == [message]

    def progress(self, message: MessageId) -> Procedure[Progress | None]:
        """What its task last said."""
        keys = self._queue.calls.keys
        text = (yield Commands((("GET", progress_key(keys, message)),), keys.meta))[0]
        if not isinstance(text, bytes):
            return None
        return decode_progress(text, keys.queue, message, self._payloads)

    def outcome(self, message: MessageId) -> Procedure[Outcome | None]:
        """How it ended; None when it has not."""
        reply = (yield self._queue.calls.wait([message]))[0]
        return None if reply is None else decode_outcome(message, reply)
