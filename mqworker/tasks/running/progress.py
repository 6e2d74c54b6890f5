"""Progress of running tasks: how far each has come, kept on the server for whoever asks."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.delivery import Delivery
from mqworker.model.names import MessageId
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.script import Call, scripts_of

script = scripts_of(__package__)

KEPT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job has come, in whatever unit the task counts."""

    done: float
    total: float | None
    fence: int

    @property
    def share(self) -> float | None:
        """From 0 to 1, where the total is known."""
        return None if not self.total else min(1.0, self.done / self.total)


def progress_call(keys: WorkQueueKeys, delivery: Delivery, done: float, total: float | None) -> Call[int]:
    """The script that keeps the progress of a delivery."""
    arguments = (delivery.fence, f"{done:.15g}", "" if total is None else f"{total:.15g}", KEPT_MS)
    return Call(script("progress"), (progress_key(keys, delivery.id),), arguments, int)


def progress_key(keys: WorkQueueKeys, message: MessageId) -> str:
    """string: 'fence done total' of one message, with a time to live."""
    return keys.named(f"progress:{message}")


def decode_progress(text: bytes) -> Progress | None:
    """What progress.lua wrote; None for anything else."""
    try:
        fence, done, total = text.decode().split(" ")
        return Progress(float(done), float(total) if total else None, int(fence))
    except ValueError:
        return None
