"""The tasks that the benchmarks of a node run."""

import sqlite3
import time
from functools import cache
from typing import Any

from mqworker import App, Batch

app = App("bench")


@app.task
def noop() -> None:
    """Nothing: what is left is the framework."""


@app.task
def stamp(sent: float) -> float:
    """Milliseconds from enqueue to the first line of the task; the clocks are one host's."""
    return (time.monotonic() - sent) * 1000


@app.task
def work(ms: float) -> None:
    """Sleep: the interpreter is free, the worker is not."""
    time.sleep(ms / 1000)


@app.task(queue="limits", result_ttl=0)
def plain_of_key(key: int) -> None:
    """Nothing, without a limit: what the others are compared with."""


@app.task(queue="limits", result_ttl=0, max_running={"{key}": 1})
def one_of_key(key: int) -> None:
    """Nothing, one at a time for each key."""


@app.task(queue="limits", result_ttl=0, max_running=[4, {"{key}": 2}])
def few_of_key(key: int) -> None:
    """Nothing, two of each key and four in total."""


@app.task(queue="limits", result_ttl=0, fair_by="{key}")
def turns_of_key(key: int) -> None:
    """Nothing, key after key."""


@cache
def _database(path: str) -> sqlite3.Connection:
    """One connection for each worker; two of them write, so each waits for the other."""
    database = sqlite3.connect(path, timeout=60, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER)")
    return database


@app.task(queue="rows", result_ttl=0)
def store_row(row: list[Any]) -> None:
    """One row, one transaction. Any: the path of the database, and a number."""
    _database(row[0]).execute("INSERT INTO rows VALUES (?)", row[1:])


@app.task(queue="rows", result_ttl=0, batch=Batch(size=500, wait=0.1))
def store_rows(rows: list[list[Any]]) -> None:
    """Up to 500 rows, one transaction."""
    database = _database(rows[0][0])
    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT INTO rows VALUES (?)", [row[1:] for row in rows])
    database.execute("COMMIT")
