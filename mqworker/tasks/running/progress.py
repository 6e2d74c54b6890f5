"""Progress of running tasks: how far each has come, kept on the server for whoever asks."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from mqworker.model.delivery import Delivery
from mqworker.model.keyring import peeled
from mqworker.model.names import MessageId
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.script import Call, scripts_of
from mqworker.tasks.payloads import Payloads

script = scripts_of(__package__)

KEPT_MS = 3_600_000
_CLOSED = "sealed"
"""In the place of the total, where `done` holds both, sealed, in base64."""


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


def progress_call(
    keys: WorkQueueKeys,
    delivery: Delivery,
    done: float,
    total: float | None,
    payloads: Payloads | None = None,
) -> Call[int]:
    """The script that keeps the progress of a delivery."""
    texts = f"{done:.15g}", "" if total is None else f"{total:.15g}"
    if payloads is not None:
        closed = payloads.close_progress(keys.queue, delivery.id, delivery.fence, " ".join(texts).encode())
        texts = base64.b64encode(closed).decode(), _CLOSED
    arguments = (delivery.fence, *texts, KEPT_MS)
    return Call(script("progress"), (progress_key(keys, delivery.id),), arguments, int)


def progress_key(keys: WorkQueueKeys, message: MessageId) -> str:
    """string: 'fence done total' of one message, with a time to live; or 'fence sealed sealed'."""
    return keys.named(f"progress:{message}")


def decode_progress(
    text: bytes, queue: str = "", message: str = "", payloads: Payloads | None = None
) -> Progress | None:
    """What progress.lua wrote; None for anything else. Raises `NotVerified`.

    Without keys, what is signed is read as it stands, and what is encrypted is not known.
    """
    try:
        fence, done, total = text.decode().split(" ")
        closed = base64.b64decode(done, validate=True) if total == _CLOSED else f"{done} {total}".encode()
        number = int(fence)
    except ValueError:
        return None
    opened = peeled(closed) if payloads is None else payloads.open_progress(queue, message, number, closed)
    try:
        done, total = opened.decode().split(" ")
        return Progress(float(done), float(total) if total else None, number)
    except ValueError:
        return None
