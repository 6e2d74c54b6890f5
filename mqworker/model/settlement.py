"""Settlements: the ways in which a delivery ends. A closed union; the queue carries them out."""

from dataclasses import dataclass, field
from typing import Final

from mqworker.model.delivery import Delivery, UnreadableDelivery
from mqworker.model.instant import After, Instant


@dataclass(slots=True)  # not frozen: see Delivery
class Run:
    """Where and how long the task ran, for the event of the settlement."""

    worker: str
    node: str
    started_at_ms: int
    run_ms: float = 0.0


UNKNOWN_TASK: Final = "-"


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, as data: type name, message and traceback, never an object."""

    error: str
    message: str = ""
    traceback: str = ""


@dataclass(slots=True)  # not frozen: see Delivery
class Ack:
    """Done. The result, if any, is kept for whoever waits for it."""

    delivery: Delivery
    result: bytes = b""
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class RetryAt:
    """It failed and is tried once more, later."""

    delivery: Delivery
    due: Instant = field(default_factory=lambda: After(0))
    failure: Failure | None = None
    run: Run | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """It was not finished, by no fault of the task: back to the front of its line, at once and uncounted."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Park:
    """Nobody here can run it: set aside, uncounted, until somebody who can may have come."""

    delivery: Delivery
    due: Instant
    failure: Failure
    mark: str = ""
    """UNKNOWN_TASK, or which version of the task refused the call: whoever knows another one may claim it at
    once. Empty: nobody may, before it is due."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The worker died over it: back to the front, counted apart from failures."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Suspect:
    """The worker died while it ran there beside others: back to the front, uncounted, to run alone."""

    delivery: Delivery
    cause: str = ""
    most: int = 1
    """With so many of its batch at the most, itself included, and with nothing else."""


@dataclass(frozen=True, slots=True)
class Bury:
    """Given up: kept as a dead letter with the reason and the evidence."""

    delivery: Delivery | UnreadableDelivery
    reason: str
    failure: Failure | None = None
    evidence: dict[str, str] = field(default_factory=dict)
    run: Run | None = None


Settlement = Ack | RetryAt | Release | Park | Crash | Suspect | Bury
