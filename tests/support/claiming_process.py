"""A process that claims and settles until nothing is left, and keeps a ledger that survives kill -9.

Started as `python -m tests.support.claiming_process <url> <ledger> <consumer or ''> <lease ms> <stop>`.
The ledger is appended by single small writes: `E id fence pid` when a message is in hand, `A id fence pid`
when its ack was accepted, `L id fence pid` when it was refused. It ends when the file <stop> appears.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from tests.support.ledger import LedgerWriter
from tests.support.messages import open_store

QUEUE = "q"
BATCH = 20
WORK_S = 0.002
GIVES_UP_AFTER_S = 60.0


def main(url: str, ledger_path: str, consumer: str, lease_ms: str, stop_path: str) -> None:
    """Claims and settles until it is told to stop."""
    path = Path(ledger_path)
    store, ledger = open_store(url), LedgerWriter(path.parent, path.stem)

    def note(what: str, delivery: Delivery) -> None:
        ledger.note(what, delivery.id, delivery.fence, os.getpid())

    queue = WorkQueue(QUEUE, store)
    ends_at = time.monotonic() + GIVES_UP_AFTER_S
    stop = Path(stop_path)
    while not stop.exists() and time.monotonic() < ends_at:
        deliveries = queue.claim(BATCH, consumer=consumer or None, lease_ms=int(lease_ms))
        for delivery in deliveries:
            note("E", delivery)
        time.sleep(WORK_S)  # the task, or the pause when there is nothing to do
        lost = queue.settle(*map(Ack, deliveries), consumer=consumer or None)
        refused = {settlement.delivery.fence for settlement in lost}
        for delivery in deliveries:
            note("L" if delivery.fence in refused else "A", delivery)
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
