"""How long until a call of an outbox is in Redis: `python -m benchmarks.outbox_lag URL [PER_S] [SECONDS]`.

A producer commits so many transactions a second, each with one call; the tasks, run by a node on the same
machine, write down when Redis got the call and when its transaction began.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from mqworker import App, Context
from mqworker.queues.gq.sql.engine import open_engine
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

LEDGER = Path(tempfile.gettempdir()) / "mqworker-outbox-lag"

app = App("lag")


@app.task(queue="lag", result_ttl=1)
def note(sent_at_ms: float, ctx: Context) -> None:
    """One line for each call."""
    with LEDGER.open("a") as file:
        file.write(f"{ctx.enqueued_at_ms - sent_at_ms:.1f}\n")


def produce(url: str, per_s: int, seconds: int) -> float:
    """Commit calls at a steady rate; how many a second it was in truth."""
    engine = open_engine(url) if url.startswith("sqlite") else create_engine(url)
    app.outbox(engine)
    began_at = time.monotonic()
    for number in range(per_s * seconds):
        time.sleep(max(0.0, began_at + number / per_s - time.monotonic()))
        with Session(engine) as session, session.begin():
            note.using(session=session).enqueue(time.time() * 1000)
    return per_s * seconds / (time.monotonic() - began_at)


def main() -> None:
    """Measure, and print one line."""
    url, per_s, seconds = sys.argv[1], *map(int, (*sys.argv[2:], "1000", "20")[:2])
    LEDGER.unlink(missing_ok=True)
    app.outbox(create_engine(url)).create_table()
    with RealServer(aof="everysec") as server:
        app._redis_url = server.url  # noqa: SLF001 - known only now
        settings = {"MQWORKER_OUTBOX_URL": url, "MQWORKER_WORKERS": "1", "MQWORKER_QUEUES": "lag"}
        with RealNode(server.url, "benchmarks.outbox_lag:app", settings=settings):
            reached = produce(url, per_s, seconds)
            wait_until(lambda: len(lines()) >= per_s * seconds, "all ran", 120)
    lags = sorted(lines())
    p50, p99, most = (lags[round((len(lags) - 1) * share)] for share in (0.5, 0.99, 1.0))
    print(f"{reached:,.0f}/s, {len(lags):,} calls: p50 {p50:.1f} ms, p99 {p99:.1f} ms, most {most:.1f} ms")


def lines() -> list[float]:
    """What was written down."""
    return [float(line) for line in LEDGER.read_text().split()] if LEDGER.exists() else []


if __name__ == "__main__":
    main()
