"""The Spark pipeline: batch read, archive and bulk enqueue, with events as real tasks leave them behind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.private_server import private_server
from benchmarks.table import heading, row
from mqworker import App
from mqworker.events import open_event_streams
from mqworker.model.clock import SystemClock
from mqworker.model.message import Message
from mqworker.model.message_id import MessageIdSource
from mqworker.model.names import TaskName
from mqworker.model.settlement import Ack, Run, Settlement
from mqworker.settings import Settings, load_settings
from mqworker_services.pipeline.archive import ArchivePlan, Archiver, archive_once
from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.enqueueing import EnqueuePlan, enqueue_file
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.session import open_session
from mqworker_services.pipeline.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = (1_000_000, 5_000_000)
BULK_ROWS = 1_000_000
PER_CALL = 500
BATCHES = 500
CLOCK = SystemClock()


def run(rounds: int) -> None:
    """Measure at each size; the first read is cold, the best of the others is warm."""
    spark = open_session("benchmark")
    for events in SIZES:
        with private_server(aof=False) as url, tempfile.TemporaryDirectory() as folder:
            settings = load_settings({"redis_url": url, "events_kept": 100_000_000})
            heading(f"pipeline, {events:,} events")
            make_events(settings, events)
            _measure_read(spark, settings, events, rounds)
            for engine in (LocalEngine(), SparkEngine(spark)):
                _measure_archive(engine, settings, events, Path(folder), rounds)
    heading(f"pipeline, {BATCHES:,} small batches into one lake")
    measure_growth()
    heading(f"pipeline, {BULK_ROWS:,} rows enqueued from Parquet")
    _measure_enqueue(spark, rounds)
    spark.stop()


def make_events(settings: Settings, events: int) -> None:
    """Enqueue and settle half as many messages, in calls of the size that a busy node makes."""
    app = App("bench", settings=settings)
    work, ids = app.work_queue("bench"), MessageIdSource(CLOCK.now_ms)
    for _ in range(events // 2 // PER_CALL):
        work.enqueue(*[Message(ids.next(), b"", TaskName("bench.task")) for _ in range(PER_CALL)])
        now_ms = CLOCK.now_ms()
        done: list[Settlement] = [
            Ack(delivery, b"", Run("worker:0", "bench", now_ms, 1.5)) for delivery in work.claim(PER_CALL)
        ]
        work.settle(*done)
    app.close()


def _measure_read(spark: SparkSession, settings: Settings, events: int, rounds: int) -> None:
    def read() -> None:
        rows = spark.read.format("mqworker").option("redis_url", settings.redis_url or "").load()
        rows.write.format("noop").mode("overwrite").save()

    row("batch read, cold", _rate(events, _seconds(read)))
    row("batch read, warm", _rate(events, min(_seconds(read) for _ in range(rounds))))


def _measure_archive(engine: Engine, settings: Settings, events: int, folder: Path, rounds: int) -> None:
    lakes = [Lake.at(str(folder / type(engine).__name__ / str(number))) for number in range(rounds)]

    def archive(lake: Lake) -> Callable[[], None]:
        plan = ArchivePlan(settings, lake)
        return lambda: archive_once(engine, plan, lambda _batch, _events: None)

    seconds = min(_seconds(archive(lake)) for lake in lakes)
    size = sum(file.bytes for file in LakeTable.open(lakes[0]).files())
    row(
        f"archive, {type(engine).__name__}",
        _rate(events, seconds),
        f"{size / events:.1f} bytes an event in Parquet",
    )


def measure_growth() -> None:
    """What a small batch costs at the beginning of a lake, and after hundreds of others."""
    seconds: list[float] = []
    with private_server(aof=False) as url, tempfile.TemporaryDirectory() as folder:
        settings = load_settings({"redis_url": url})
        plan = ArchivePlan(settings, Lake.at(folder))
        with open_event_streams(settings) as streams:
            make_events(settings, 2 * PER_CALL)
            archiver = Archiver(LocalEngine(), plan, streams)
            for _ in range(BATCHES):
                make_events(settings, 2 * PER_CALL)
                seconds.append(_seconds(lambda: archiver.archive_present(lambda _batch, _events: None)))
                archiver.tidy()  # as one that follows does
    first, last = (1000 * sum(some) / len(some) for some in (seconds[1:51], seconds[-50:]))
    row("a batch of 1,000 events, the first 50", f"{first:.1f} ms")
    row(f"the same after {BATCHES - 50:,} others", f"{last:.1f} ms", f"{last / first:.2f} times as long")


def _measure_enqueue(spark: SparkSession, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "orders.parquet"
        rows = spark.range(BULK_ROWS).selectExpr("id AS number", "concat('customer-', id) AS customer")
        rows.write.parquet(str(file))
        row("bulk enqueue", _rate(BULK_ROWS, min(_enqueue_seconds(spark, file) for _ in range(rounds))))


def _enqueue_seconds(spark: SparkSession, file: Path) -> float:
    with private_server(aof=False) as url:
        plan = EnqueuePlan(load_settings({"redis_url": url}), file, "ship", "orders")
        return _seconds(lambda: enqueue_file(spark, plan))


def _seconds(action: Callable[[], object]) -> float:
    began_ms = CLOCK.monotonic_ms()
    action()
    return (CLOCK.monotonic_ms() - began_ms) / 1000


def _rate(count: int, seconds: float) -> str:
    return f"{count / seconds:,.0f}/s"
