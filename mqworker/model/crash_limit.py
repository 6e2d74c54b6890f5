"""The crash limit: what becomes of a message when a worker has died over it. The one place that decides it.

reclaim.lua does the same for leases that expire, where nobody else is left to decide.
"""

from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Bury, Crash, Failure

CRASHED = "crashed"
"""The reason of a burial."""


def after_crash(delivery: Delivery, cause: str = "") -> Crash | Bury:
    """Once more, or buried with the evidence if that was one crash too many."""
    crashes = delivery.crashes + 1
    if delivery.max_crashes is None or crashes < delivery.max_crashes:
        return Crash(delivery)
    often = "once" if crashes == 1 else f"{crashes} times"
    told = f"the worker died over it {often}" + (f": {cause}" if cause else "")
    return Bury(delivery, CRASHED, Failure("WorkerCrashed", told), evidence={"cause": cause} if cause else {})
