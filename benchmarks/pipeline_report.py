"""`mqworker pipeline report` over a made-up lake, beside DuckDB with the same questions, exactly answered.

DuckDB runs in this process and needs no JVM: on one machine it is quicker, and the table says by how much.
What the report costs beyond it buys a cluster for lakes that one machine cannot read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, TypeVar

import duckdb
import psutil

from benchmarks.table import heading, row
from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.question import Detail, Question, Report, Window
from mqworker_services.pipeline.session import LIGHT, open_session
from mqworker_services.pipeline.table import lake_files
from tests.pipeline.synthetic_lake import DAY_MS, FIRST_MS, write_lake  # the same lake as in the tests

T = TypeVar("T")

SIZES = (5_000_000, 1_000_000)  # the larger one first: its first report is the first of the process
EVENTS_PER_MESSAGE = 2.023
TARGET_S = 5.0
WEEKS = Window(None, FIRST_MS + 30 * DAY_MS)


def run(rounds: int) -> None:
    """Measure at each size. The first report of a process pays for what Java compiles, the others do not."""
    threads = os.cpu_count() or 1
    spark, start_s = _timed(lambda: open_session("benchmark", master=f"local[{threads}]", conf=LIGHT))
    for events in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            lake = Lake.at(folder)
            ledger = write_lake(lake, round(events / EVENTS_PER_MESSAGE))
            heading(f"report, {ledger.rows:,} events, {threads} threads")
            _measure_local(lake, rounds)
            row("start of the Spark session", f"{start_s:.1f} s")
            _measure(SparkEngine(spark), lake, rounds)
    spark.stop()


def _measure_local(lake: Lake, rounds: int) -> None:
    seconds = min(_timed(lambda: _report(LocalEngine(), lake, Detail.TABLE))[1] for _ in range(rounds))
    row("report by task, without Spark", f"{seconds:.2f} s", f"as a command {_command_s(lake):.2f} s")


def _measure(engine: Engine, lake: Lake, rounds: int) -> None:
    began_cpu_s = _java_cpu_s()
    report, first_s = _timed(lambda: _report(engine, lake, Detail.TABLE))
    row("report by task, first", f"{first_s:.1f} s", f"{_java_cpu_s() - began_cpu_s:.1f} s of CPU in Java")
    began_cpu_s = _java_cpu_s()
    again_s = min(_timed(lambda: _report(engine, lake, Detail.TABLE))[1] for _ in range(rounds))
    cpu_s = (_java_cpu_s() - began_cpu_s) / rounds
    row("report by task, again", f"{again_s:.1f} s", f"{cpu_s:.1f} s of CPU in Java; target {TARGET_S:.0f} s")
    row("report with charts", f"{_timed(lambda: _report(engine, lake, Detail.PAGE))[1]:.1f} s")
    exact, duckdb_s = _timed(lambda: _exact(lake))
    duckdb_s = min(duckdb_s, *(_timed(lambda: _exact(lake))[1] for _ in range(rounds)))
    row("DuckDB, exact percentiles", f"{duckdb_s:.1f} s", f"report / DuckDB {again_s / duckdb_s:.1f}")
    row("largest error of a percentile", f"{100 * _largest_error(report, exact):.2f} %", "target 1 %")


def _report(engine: Engine, lake: Lake, detail: Detail) -> Report:
    question = Question(lake, WEEKS, slowest=5, detail=detail)
    return make_report(engine, question, look_at_files(lake, WEEKS))


# Any: the rows of a foreign library.
def _exact(lake: Lake) -> list[tuple[Any, ...]]:
    """The questions of the report: counts, run time and wait by task, and the five longest runs."""
    source = f"read_parquet({[lake.storage.path(lake.file(file.path)) for file in lake_files(lake)]})"
    duckdb.execute(f"SELECT task_id, run_ms FROM {source} ORDER BY run_ms DESC NULLS LAST LIMIT 5").fetchall()  # noqa: S608 - our own lake
    return duckdb.execute(
        f"""SELECT task, quantile_disc(run_ms, [0.5, 0.95, 0.99]),
                   quantile_disc(wait_ms, [0.5, 0.95, 0.99]) FILTER (attempt = 1),
                   count(*), sum(run_ms), max(run_ms), max(wait_ms),
                   count(*) FILTER (event = 'enqueued'), count(*) FILTER (event = 'succeeded'),
                   count(*) FILTER (event = 'retried'), count(*) FILTER (event = 'buried')
            FROM {source} GROUP BY task"""  # noqa: S608 - our own lake
    ).fetchall()


def _largest_error(report: Report, exact: list[tuple[Any, ...]]) -> float:
    times_by_task = {group.name: group.times for group in report.groups}
    return max(
        abs((histogram.percentile(percent) or 0.0) / value - 1)
        for task, runs, waits, *_ in exact
        for histogram, values in ((times_by_task[task].run, runs), (times_by_task[task].wait, waits))
        for percent, value in zip((50, 95, 99), values, strict=True)
    )


def _command_s(lake: Lake) -> float:
    """From the shell to the last line: what a user waits for, with nothing warm."""
    command = [sys.executable, "-m", "mqworker", "pipeline", "report", "--lake", lake.root]
    return _timed(lambda: subprocess.run(command, check=True, capture_output=True))[1]


def _java_cpu_s() -> float:
    """What Spark's JVM has used so far: tells more than the clock when other programs are running."""
    times = [each.cpu_times() for each in psutil.Process().children(recursive=True) if each.name() == "java"]
    return sum(each.user + each.system for each in times)


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    began = time.perf_counter()
    return work(), time.perf_counter() - began
