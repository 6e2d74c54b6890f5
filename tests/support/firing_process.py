"""A broker in a process of its own, to be killed or stopped: it holds rounds until then.

Started as `python -m tests.support.firing_process <url>`.
"""

from __future__ import annotations

import sys
import time

from mqworker.actors.broker import broker_of
from mqworker.log import get_logger
from mqworker.model.clock import SystemClock
from mqworker.queues.work.calls import WorkQueueOptions
from tests.support.messages import open_store

LARGEST_MESSAGE_BYTES = 1_048_576
LONGEST_SLEEP_S = 0.1


def main(url: str) -> None:
    """Hold rounds for ever."""
    clock, store = SystemClock(), open_store(url)
    broker = broker_of(store, WorkQueueOptions("mqw"), LARGEST_MESSAGE_BYTES, get_logger(actor="broker"))
    while True:
        broker.turn(clock.monotonic_ms())
        time.sleep(min(LONGEST_SLEEP_S, broker.next_turn_in_ms(clock.monotonic_ms()) / 1000))


if __name__ == "__main__":
    main(*sys.argv[1:])
