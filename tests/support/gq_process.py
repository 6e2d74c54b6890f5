"""A process that consumes a gq queue until it is told to stop, and keeps a ledger that survives kill -9.

Started as `python -m tests.support.gq_process <redis or sql> <url> <queue> <folder> <number> <held or ''>`.
The ledger <folder>/<number>.ledger has one line for each callback, written at once: the payload. On the held
payload the callback writes its line and never returns. The process ends when <folder>/stop appears.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.rules import GqLiveness
from tests.support.ledger import LedgerWriter
from tests.support.messages import open_store

GIVES_UP_AFTER_S = 120.0
BATCH = 50

# A process that gets no turn on a busy machine must not be taken for dead: that would be another test.
PATIENT = GqLiveness(interval_ms=1_000, missed_beats=30)


def main(kind: str, url: str, queue: str, folder: str, *, number: str, held: str) -> None:
    """Consumes until it is told to stop."""
    client = GqClient.on_redis(queue, open_store(url)) if kind == "redis" else GqClient.on_sql(queue, url)
    ledger = LedgerWriter(Path(folder), number)

    def process(payload: bytes) -> None:
        ledger.note(payload.decode())
        if held and payload == held.encode():
            time.sleep(GIVES_UP_AFTER_S)  # until somebody kills this process

    consumer = client.consumer(process, pop_batch=BATCH, liveness=PATIENT)
    threading.Thread(target=_stop_when_told, args=(consumer.stop, Path(folder) / "stop"), daemon=True).start()
    consumer.run()
    client.close()


def _stop_when_told(stop: Callable[[], None], told: Path) -> None:
    ends_at = time.monotonic() + GIVES_UP_AFTER_S
    while not told.exists() and time.monotonic() < ends_at:
        time.sleep(0.02)
    stop()


if __name__ == "__main__":
    main(*sys.argv[1:5], number=sys.argv[5], held=sys.argv[6])
