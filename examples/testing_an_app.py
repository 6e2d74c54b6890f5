"""Testing an app: no server, no worker, no sleeping. Run it: `pytest testing_an_app.py`.

Tasks go through the scripts and states of production, in memory; the clock moves when you say so.
"""

from collections.abc import Callable

import pytest

from mqworker import App, Context, Retry
from mqworker.testing import Bench

app = App("shop")
charged: list[int] = []


@app.task(retry=Retry(max=2, first=60, jitter=0))
def charge(order: int, ctx: Context) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("the bank did not answer")
    if order not in charged:  # a worker may die after the work and before anybody hears of it
        charged.append(order)
    remind.using(delay=86_400).enqueue(order)
    return f"order {order} charged"


@app.task
def remind(order: int) -> None:
    """A day later."""


@pytest.fixture
def bench(mqworker_bench: Callable[[App], Bench]) -> Bench:
    charged.clear()
    return mqworker_bench(app)


def test_a_charge_is_retried_after_a_minute_and_reminds_after_a_day(bench: Bench) -> None:
    job = charge.delay(7)

    assert bench.run_all().retried == 1
    bench.advance(seconds=60)
    assert bench.run_all().succeeded == 1
    assert job.result() == "order 7 charged"
    assert [call.args for call in bench.enqueued(remind)] == [(7,)]
    bench.advance(days=1)
    assert bench.run_all().succeeded == 1


def test_an_order_is_charged_once_even_if_the_worker_dies(bench: Bench) -> None:
    charge.delay(7)
    bench.run_all()  # fails, and waits for its second attempt
    bench.crash_next(charge, when="after")

    assert bench.run_to_end().crashed == 1
    assert charged == [7]


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q"]))
