"""A million tasks from a Parquet file: enqueued by Spark, run, archived, and asked about.

In one terminal:  mqworker run spark_million:app
In another:       python spark_million.py [ROWS]        (needs pip install 'mqworker[spark]')

The commands `mqworker pipeline enqueue`, `archive`, `verify` and `report` do the same, one at a time.
"""

import sys
import time

from mqworker import App
from mqworker.events import with_server
from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.engine import SparkEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.question import Question, window
from mqworker_services.pipeline.session import open_session
from mqworker_services.pipeline.verify import verify

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

    lake, engine = Lake.at("lake"), SparkEngine(spark)
    archive_once(engine, ArchivePlan(settings, lake, is_trimming=True), lambda _batch, _events: None)
    verdict = verify(engine, lake)
    print(f"{verdict.rows:,} events archived: {'; '.join(verdict.problems()) or 'none missing, none twice'}")

    everything = window(None, None, app.clock.now_ms())
    report = make_report(engine, Question(lake, everything), look_at_files(lake, everything))
    for group in report.groups:
        wait, run = group.times.wait.percentile(99), group.times.run.percentile(99)
        print(f"{group.name}: {group.counts.succeeded:,} succeeded, {report.per_second(group.counts):,.0f}/s")
        print(f"99 % of them waited up to {wait or 0:,.0f} ms and ran up to {run or 0:.3f} ms")
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
