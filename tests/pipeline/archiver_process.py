"""An archiver to be killed: `python -m tests.pipeline.archiver_process URL LAKE ENGINE [WHEN]`.

ENGINE is `local` or `spark`.

Says `ready` when it is about to archive, and `batch N` for each batch in place. With WHEN, a number, it kills
itself in that batch, between the write and the commit.
"""

from __future__ import annotations

import os
import signal
import sys

from mqworker.settings import load_settings
from mqworker_services.pipeline.archive import ArchivePlan, archive_and_follow
from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.lake import Lake
from tests.pipeline.quick_java import QUICK_CONF


def main(url: str, lake: str, engine: str, die_in: int = -1) -> None:
    """Archive and follow, in small batches, trimming."""

    def report(batch: int, _events: int) -> None:
        if batch >= die_in >= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"batch {batch}", flush=True)  # noqa: T201 - how the test hears of it

    workers = LocalEngine() if engine == "local" else _spark()
    print("ready", flush=True)  # noqa: T201 - same
    plan = ArchivePlan(
        load_settings({"redis_url": url}),
        Lake.at(lake),
        is_trimming=True,
        max_events_per_batch=3_000,
        interval_s=0.1,
    )
    archive_and_follow(workers, plan, report)


def _spark() -> Engine:
    from mqworker_services.pipeline.session import open_session  # noqa: PLC0415 - seconds to import

    return SparkEngine(open_session("archiver", master="local[2]", conf=QUICK_CONF))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
