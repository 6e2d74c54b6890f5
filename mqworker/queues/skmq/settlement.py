"""How a pushed message is settled, by its consumer's answer or silence. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.settlement import Ack, Bury, Failure, Park, RetryAt, Settlement

ACK = "ack"
ARRIVED = "arrived"
REJECT = "reject"
ERROR = "error"
SILENCE = "no ack in time"
UNREACHABLE = "no recipient could be reached"

_FIRST_LOOK_MS = 200
_LONGEST_LOOK_MS = 30_000


@dataclass(frozen=True, slots=True)
class RetryRules:
    """How often a message is pushed again, and how long it rests before that."""

    retry_times: int = 5
    retry_delay_ms: int = 60_000


def settlement_of(feedback: str, delivery: Delivery, rules: RetryRules) -> Settlement:
    """The end of a delivery: at most 1 + retry_times pushes, then it is buried; an error buries at once."""
    if feedback == ACK:
        return Ack(delivery)
    failure = Failure("SkmqPushFailed", feedback)
    if feedback == ERROR or delivery.failures >= rules.retry_times:
        return Bury(delivery, feedback, failure)
    return RetryAt(delivery, After(rules.retry_delay_ms), failure)


def look_again(delivery: Delivery) -> Settlement:
    """A topic's message waits for its copies: uncounted, and looked at less and less often."""
    pause_ms = min(_LONGEST_LOOK_MS, _FIRST_LOOK_MS * 2 ** min(delivery.deliveries, 10))
    return Park(delivery, After(pause_ms), Failure("SkmqCopiesOutstanding"))
