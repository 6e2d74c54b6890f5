"""`format("mqworker")` on a real server: what happened comes out, and rows go in as tasks, each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from mqworker import App
from mqworker.errors import InvalidArgument
from mqworker.model.envelope import decode_call
from mqworker.model.settlement import Ack, Bury, Failure
from mqworker.settings import Settings
from mqworker_services.pipeline.options import read_options
from tests.pipeline.event_factory import append_block_at, append_events
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


ArrowMap = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.fixture
def app(settings: Settings) -> Iterator[App]:
    application = App("shop", settings=settings)
    yield application
    application.close()


@contextmanager
def small_batches(spark: SparkSession) -> Iterator[None]:
    """Rows reach the writer by the thousand, so that an attempt which fails has stored some before."""
    usual = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    try:
        yield
    finally:
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(usual))


def table(spark: SparkSession, settings: Settings, name: str = "events") -> DataFrame:
    return (
        spark.read.format("mqworker")
        .option("redis_url", settings.redis_url or "")
        .option("table", name)
        .load()
    )


def test_events_queues_and_dead_letters_are_tables(spark: SparkSession, settings: Settings, app: App) -> None:
    work = app.work_queue("mail")
    work.push(*[f"letter {n}" for n in range(5)])
    first, second, third = work.claim(3)
    work.settle(Ack(first), Ack(second), Bury(third, "failed", Failure("ValueError", "no such address")))

    events = {row["event"]: row["count"] for row in table(spark, settings).groupBy("event").count().collect()}
    (queue,) = table(spark, settings, "queues").collect()
    (letter,) = table(spark, settings, "dead_letters").collect()

    assert events == {"enqueued": 5, "succeeded": 2, "buried": 1}
    assert (queue["queue"], queue["ready"], queue["dead"], queue["succeeded_total"]) == ("mail", 2, 1, 2)
    assert (letter["task_id"], letter["queue"], letter["reason"]) == (third.id, "mail", "failed")
    assert letter["error_msg"] == "no such address"


def test_a_server_without_queues_has_empty_tables(spark: SparkSession, settings: Settings) -> None:
    assert [table(spark, settings, name).count() for name in ("events", "queues", "dead_letters")] == [
        0,
        0,
        0,
    ]


def test_a_stream_comes_in_batches_of_limited_size_and_each_event_once(
    spark: SparkSession, settings: Settings, server: RealServer, tmp_path: Path
) -> None:
    with server.client() as client:
        made = append_events(client, "mail", 900, per_block=50) + append_events(
            client, "web", 100, per_block=7
        )
    sizes: list[int] = []
    keys: list[tuple[int, str, int]] = []

    def take(rows: DataFrame, _batch: int) -> None:
        found = [(row["shard"], row["block"], row["seq"]) for row in rows.collect()]
        sizes.append(len(found))
        keys.extend(found)

    (
        spark.readStream.format("mqworker")
        .option("redis_url", settings.redis_url or "")
        .option("max_events_per_batch", 600)
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )

    assert sum(sizes) == len(set(keys)) == made
    assert len(sizes) >= 4
    assert max(sizes) <= 600


def test_rows_become_tasks_that_a_worker_understands(
    spark: SparkSession, settings: Settings, app: App
) -> None:
    rows = spark.createDataFrame([(1, 2), (3, 4)], "left INT, right INT").coalesce(1)

    write(rows, settings)

    deliveries = app.work_queue("bulk").claim(10)
    assert {delivery.task for delivery in deliveries} == {"add"}
    assert [decode_call(delivery.body).kwargs for delivery in deliveries] == [
        {"left": 1, "right": 2},
        {"left": 3, "right": 4},
    ]


def failing_once(url: str, *, is_reordered: bool) -> ArrowMap:
    """Partitions that fail in the middle when some of their rows are stored; the second try has all rows."""

    def some_then_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time  # noqa: PLC0415 - runs in another process, where the tests cannot be imported

        import redis  # noqa: PLC0415 - same
        from pyspark import TaskContext  # noqa: PLC0415 - same

        context = TaskContext.get()
        assert context is not None
        chunks = pa.Table.from_batches(list(batches)).to_batches(max_chunksize=1_000)
        if context.attemptNumber() > 0:
            yield from reversed(chunks) if is_reordered else chunks
            return
        yield from chunks[:2]
        end = time.monotonic() + 60
        with redis.Redis.from_url(url) as client:
            while not client.exists("mqw:{bulk}:ready") and time.monotonic() < end:
                time.sleep(0.01)
        raise RuntimeError("injected")

    return some_then_all


def wide_rows(spark: SparkSession) -> DataFrame:
    """Rows of which a thousand do not fit the buffers between two processes."""
    return spark.range(0, 8_000, numPartitions=2).selectExpr("id AS number", "repeat('x', 300) AS text")


def test_a_row_is_enqueued_once_however_often_its_spark_task_runs(
    spark: SparkSession, settings: Settings, app: App
) -> None:
    failing = failing_once(settings.redis_url or "", is_reordered=False)

    with small_batches(spark):
        write(wide_rows(spark).mapInArrow(failing, "number BIGINT, text STRING"), settings)

    work = app.work_queue("bulk")
    assert (work.counts().ready, work.counts().totals["enqueued"]) == (8_000, 8_000)
    numbers = [decode_call(each.body).kwargs["number"] for _ in range(8) for each in work.claim(1_000)]
    assert sorted(numbers) == list(range(8_000))


def test_a_partition_that_comes_out_in_another_order_is_refused_unless_rows_have_ids(
    spark: SparkSession, settings: Settings, app: App
) -> None:
    failing = failing_once(settings.redis_url or "", is_reordered=True)
    rows = wide_rows(spark).mapInArrow(failing, "number BIGINT, text STRING")

    with small_batches(spark):
        with pytest.raises(Exception, match=r"came out otherwise when tried again.*\(option id\)"):
            write(rows, settings)
        stored = app.work_queue("bulk").counts().totals["enqueued"]
        app.work_queue("bulk").purge_waiting()
        write(rows.selectExpr("*", "concat('n', number) AS name"), settings, id="name")

    assert 0 < stored <= 4_000  # of each partition what the first attempt stored, and not a row more
    counts = app.work_queue("bulk").counts()
    assert (counts.ready, counts.totals["enqueued"]) == (8_000, stored + 8_000)


def test_a_column_of_ids_tells_rows_apart(spark: SparkSession, settings: Settings, app: App) -> None:
    rows = spark.createDataFrame([("order-1", 1), ("order-2", 2)], "order STRING, number INT")

    write(rows, settings, id="order")
    write(rows, settings, id="order")

    work = app.work_queue("bulk")
    assert work.counts().ready == 2
    assert work.find("order-1").state == "ready"


def test_a_stream_of_rows_becomes_tasks_once(
    spark: SparkSession, settings: Settings, app: App, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    spark.createDataFrame([(f"order-{n}", n) for n in range(100)], "order STRING, number INT").write.json(
        str(source)
    )

    for checkpoint in ("one", "two"):  # a lost checkpoint repeats everything
        (
            spark.readStream.schema("order STRING, number INT")
            .json(str(source))
            .writeStream.format("mqworker")
            .options(redis_url=settings.redis_url, task="add", queue="bulk", id="order")
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    assert app.work_queue("bulk").counts().totals["enqueued"] == 100


@pytest.mark.parametrize(
    ("mode", "options", "problem"),
    [
        ("overwrite", {}, 'accepted is "append"'),
        ("append", {"id": "nothing"}, "option id is 'nothing'; accepted are the columns of the rows: number"),
        ("append", {"task": "not a name"}, "task"),
    ],
)
def test_a_wrong_write_is_refused_and_enqueues_nothing(
    spark: SparkSession, app: App, mode: str, options: dict[str, str], problem: str
) -> None:
    rows = spark.createDataFrame([(1,)], "number INT")

    with pytest.raises(Exception, match=problem):
        write(rows, app.settings, mode=mode, **options)

    assert app.work_queue("bulk").counts().ready == 0


def write(rows: DataFrame, settings: Settings, *, mode: str = "append", **options: str) -> None:
    chosen = {"redis_url": settings.redis_url or "", "task": "add", "queue": "bulk"} | options
    rows.write.format("mqworker").mode(mode).options(**chosen).save()


def test_a_read_begins_where_it_is_told_to(settings: Settings, server: RealServer) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415

    from mqworker_services.pipeline.event_reading import EventPartition, EventReader  # noqa: PLC0415
    from mqworker_services.pipeline.event_streaming import EventStreamReader  # noqa: PLC0415

    begin_ms = 1_790_035_200_000  # 2026-09-22
    with server.client() as client:
        for number in range(10):
            append_block_at(client, "mail", begin_ms + number * 1000, [f"m{number}"])
    given = {"redis_url": settings.redis_url or ""}
    for starting, expected in (
        ("earliest", 10),
        ("2026-09-22T00:00:07", 3),
        ("2026-09-22T02:00:07.001+02:00", 2),
        ("2027-01-01", 0),
        ("latest", 0),
    ):
        options = read_options(given | {"starting": starting})
        parts = EventReader(options).partitions()
        blocks = sum(part.piece.blocks for part in parts if isinstance(part, EventPartition))
        begin = EventStreamReader(options).initialOffset()
        end = EventStreamReader(options).latestOffset(begin, ReadAllAvailable())
        assert (starting, blocks) == (starting, expected)
        assert end["mail"]["blocks"] - begin["mail"]["blocks"] == expected
    with pytest.raises(InvalidArgument, match="option starting is 'soon'; accepted are earliest, latest"):
        read_options({"starting": "soon"})
