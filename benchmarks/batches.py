"""Rows into SQLite, one transaction for each and one for each batch: rows per second, in one run.

`python -m benchmarks.batches 1000000` stores so many in each way.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

from benchmarks.node import NodeBench
from benchmarks.private_server import private_server
from benchmarks.rounds import interleave
from benchmarks.table import heading, row

COUNT = 20_000
QUEUE = "rows"
AT_ONCE = 10_000


def run(rounds: int, rows: int = COUNT) -> None:
    """Print the table of this benchmark."""
    with private_server(aof=False) as url, tempfile.TemporaryDirectory() as folder:
        bench, numbers = NodeBench(url), count()
        with bench.node():
            bench.tasks.work.enqueue(1).result(timeout=20)
            ways: dict[str, Callable[[], float]] = {
                "by ones": lambda: _store(bench, Path(folder) / str(next(numbers)), rows, _by_ones),
                "by batches of 500": lambda: _store(
                    bench, Path(folder) / str(next(numbers)), rows, _by_batches
                ),
            }
            figures = interleave(ways, rounds)
    heading(f"{rows:,} rows into SQLite: rows per second, 2 workers, median (range) of {rounds} rounds")
    ones = next(iter(figures.values()))
    for each in figures.values():
        row(each.name, each.spread, "" if each is ones else f"{each.ratio_to(ones):.1f} times as many")


def _by_ones(bench: NodeBench, path: str, numbers: range) -> None:
    bench.tasks.store_row.map([path, number] for number in numbers)


def _by_batches(bench: NodeBench, path: str, numbers: range) -> None:
    bench.tasks.store_rows.map([path, number] for number in numbers)


def _store(
    bench: NodeBench, path: Path, rows: int, enqueue: Callable[[NodeBench, str, range], None]
) -> float:
    """Enqueue all of them while nothing runs, and let them run; rows per second of the second part."""
    queue = bench.tasks.app.work_queue(QUEUE)
    queue.pause()
    for start in range(0, rows, AT_ONCE):
        enqueue(bench, str(path), range(start, min(start + AT_ONCE, rows)))
    began, target = time.perf_counter(), queue.counts().totals.get("succeeded", 0) + rows
    queue.resume()
    while queue.counts().totals.get("succeeded", 0) < target:
        time.sleep(0.005)
    passed_s = time.perf_counter() - began
    with closing(sqlite3.connect(path)) as database:
        ((stored,),) = database.execute("SELECT count(DISTINCT number) FROM rows")
    if stored != rows:
        raise AssertionError(f"{rows:,} rows were sent and {stored:,} are there")
    return rows / passed_s


if __name__ == "__main__":
    run(1, int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
