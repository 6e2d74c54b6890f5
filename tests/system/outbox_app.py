"""A shop with an outbox: orders and their calls in one transaction, and a ledger of what ran.

Run as a program it is the producer: it commits orders, rolls every third back, until it is killed.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path

from sqlalchemy import Column, MetaData, String, Table, create_engine, insert
from sqlalchemy.orm import Session

from mqworker import App
from mqworker.queues.gq.sql.engine import open_engine
from tests.support.ledger import LedgerWriter

LEDGER_VARIABLE = "TEST_OUTBOX_LEDGER"
QUEUES = ("orders", "mails")

app = App("shop")
ORDERS = Table("orders", MetaData(), Column("number", String(40), primary_key=True))
_ledger = LedgerWriter(Path(os.environ.get(LEDGER_VARIABLE, ".")))


@app.task(queue=QUEUES[0])
def handle(order: str) -> str:
    """Write down that it ran."""
    _ledger.note("ran", order)
    return order


def produce(url: str, pause_s: float) -> None:
    """Orders, each in a transaction with its call."""
    engine = open_engine(url) if url.startswith("sqlite") else create_engine(url)
    outbox = app.outbox(engine)
    outbox.create_table()
    ORDERS.metadata.create_all(engine)
    for number in count():
        order = f"{os.getpid()}-{number}"
        with Session(engine) as session:
            session.execute(insert(ORDERS).values(number=order))
            handle.using(session=session, queue=QUEUES[number % 2]).enqueue(order)
            if number % 3:
                session.commit()
            else:
                session.rollback()
        time.sleep(pause_s)


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]))
