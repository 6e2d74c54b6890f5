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
