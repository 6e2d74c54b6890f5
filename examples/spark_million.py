"""A million tasks from a Parquet file: enqueued by Spark, run, archived, and asked about.

In one terminal:  mqworker run spark_million:app
In another:       python spark_million.py [ROWS]        (needs pip install 'mqworker[spark]')

The commands `mqworker pipeline enqueue`, `archive`, `verify` and `report` do the same, one at a time.
"""

import sys
import time
from pathlib import Path

from mqworker import App
from mqworker.events import with_server
from services.pipeline.archive import ArchivePlan, archive_once
from services.pipeline.lake import Lake, read_lake
from services.pipeline.session import open_session
from services.pipeline.verify import verify

app = App("million")


@app.task(name="ship", queue="orders")
def ship(number: int, customer: str) -> None:
    """What would be done for one row."""


def main(rows: int) -> None:
    settings = with_server(app.settings)
    spark = open_session("million")
    orders = spark.range(rows).selectExpr("id AS number", "concat('customer-', id % 997) AS customer")
    orders.write.mode("overwrite").parquet("orders.parquet")

    began = time.monotonic()
    enqueue = spark.read.parquet("orders.parquet").write.format("mqworker").mode("append")
    enqueue.options(task="ship", queue="orders", redis_url=settings.redis_url).save()
    print(f"{rows:,} rows enqueued in {time.monotonic() - began:.1f} s", flush=True)

    while app.work_queue("orders").counts().totals.get("succeeded", 0) < rows:
        time.sleep(0.1)
    print(f"all of them run after {time.monotonic() - began:.1f} s", flush=True)

    lake = Lake(Path("lake").absolute())
    archive_once(spark, ArchivePlan(settings, lake, is_trimming=True), lambda _batch, _events: None)
    verdict = verify(spark, lake)
    print(f"{verdict.rows:,} events archived, {verdict.distinct:,} of them distinct; {verdict.problems()}")

    history = read_lake(spark, lake).groupBy("event", "task")
    history.agg({"task_id": "count", "wait_ms": "avg", "run_ms": "avg"}).show()
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
