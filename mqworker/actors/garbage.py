"""Garbage: how seldom the processes that handle thousands of values at a time look for cycles among them."""

from __future__ import annotations

import gc

_WORKER_COLLECTS_AFTER = 20_000
_GATEWAY_COLLECTS_AFTER = 50_000


def collect_seldom_in_worker() -> None:
    """Call it when the application is there: no collection looks through it again.

    A batch of deliveries is no garbage either: with Python's usual threshold it would be searched for some
    before it is run.
    """
    gc.freeze()
    gc.set_threshold(_WORKER_COLLECTS_AFTER, *gc.get_threshold()[1:])


def collect_seldom_at_gateway() -> None:
    """For gateways and the actors that serve them.

    Thousands of requests wait at a time, none in a cycle: looking for some took a fifth of the time.
    """
    gc.freeze()
    gc.set_threshold(_GATEWAY_COLLECTS_AFTER, 20, 50)
