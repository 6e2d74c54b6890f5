"""The tasks that the benchmarks of a node run."""

import time

from mqworker import App

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
