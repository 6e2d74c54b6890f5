"""What becomes of a delivery whose call could not be opened: put aside for a while, or buried."""

from __future__ import annotations

from mqworker.errors import InvalidMessage, KeyUnknown, NotVerified, PayloadMissing, PayloadUnavailable
from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.settlement import Bury, Park
from mqworker.tasks.running.failure import failure_of

Unopened = InvalidMessage | PayloadMissing | PayloadUnavailable
UNOPENED = (InvalidMessage, PayloadMissing, PayloadUnavailable)

FIRST_WAIT_MS, LONGEST_WAIT_MS = 500, 60_000
MOST_WAITS = {KeyUnknown: 16, PayloadMissing: 5, PayloadUnavailable: 67}
"""How often a message waits for what may come: ten minutes for a key that is being rotated, some seconds for
a payload that is not there, an hour for a place of payloads that does not answer."""


def settle_unopened(delivery: Delivery, error: Unopened) -> Park | Bury:
    """How such a delivery ends; the reason tells why it is dead."""
    if delivery.deliveries < MOST_WAITS.get(type(error), 0):
        wait_ms = min(LONGEST_WAIT_MS, FIRST_WAIT_MS << min(delivery.deliveries, 20))
        return Park(delivery, After(wait_ms), failure_of(error))
    return Bury(delivery, _reason(error), failure_of(error))


def _reason(error: Unopened) -> str:
    match error:
        case NotVerified():
            return "unverified"
        case PayloadMissing():
            return "payload_missing"
        case PayloadUnavailable():
            return "payload_unavailable"
        case _:
            return "undecodable"
