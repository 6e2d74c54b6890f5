"""The application of `benchmarks.gq`: a task that does nothing, on a gq queue in the database of the URL."""

from __future__ import annotations

import os

from mqworker import App, Gq

URL_VARIABLE = "MQW_BENCH_DATABASE"
QUEUE = "bench"

app = App("bench")
app.queue(QUEUE, model=Gq(url=os.environ[URL_VARIABLE]))


@app.task(queue=QUEUE, name="bench.nothing")
def nothing(number: int) -> None:
    """A task."""
