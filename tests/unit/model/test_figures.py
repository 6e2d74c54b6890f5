"""Figures: what is counted is exact, what is read from a histogram right within an eighth."""

from __future__ import annotations

import math
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.delivery import Delivery
from mqworker.model.figures import (
    MOST_TASKS,
    OTHER,
    Figures,
    TaskFigures,
    bounds_ms,
    bucket_of,
    percentile_ms,
    task_figures_of,
)
from mqworker.model.names import MessageId, TaskName
from mqworker.model.settlement import Ack, Bury, RetryAt, Run

durations = st.floats(min_value=0, max_value=1e9)


@given(durations)
def test_a_duration_lies_within_the_bounds_of_its_bucket(ms: float) -> None:
    low, high = bounds_ms(bucket_of(ms))

    assert low <= ms < high or math.isclose(ms, low)
    assert high <= low * 1.2500001 or low == 0


@given(st.lists(durations, min_size=1, max_size=200))
def test_a_percentile_is_right_within_an_eighth_of_the_next_larger_value(values: list[float]) -> None:
    figures = TaskFigures()
    for value in values:
        figures.note_run(value)

    exact = sorted(values)[math.ceil(0.95 * len(values)) - 1]
    found = percentile_ms(figures.runs, 0.95, max(values))

    assert found is not None
    assert 0 <= found <= max(values)
    assert abs(found - exact) <= 0.2500001 * exact + 0.001


def batch(runs_ms: list[float]) -> tuple[list[Ack], list[float]]:
    deliveries = [
        Delivery(at, MessageId(f"m{at}"), TaskName("t"), b"", enqueued_at_ms=1_000)
        for at in range(len(runs_ms))
    ]
    return [
        Ack(delivery, run=Run("w", "n", 1_500, ms)) for delivery, ms in zip(deliveries, runs_ms, strict=True)
    ], runs_ms


@given(st.lists(durations, min_size=1, max_size=500))
def test_a_batch_is_counted_in_full_however_few_of_it_are_looked_at(values: list[float]) -> None:
    figures = Figures()

    figures.note_runs("q", "t", *batch(values))

    counted = figures.by_task["q", "t"]
    assert sum(counted.runs.values()) == sum(counted.waits.values()) == counted.ended == len(values)
    assert len(counted.runs) <= 16
    assert counted.run_max_ms == max(values)
    assert math.isclose(counted.run_sum_ms, sum(values))


def test_a_large_batch_keeps_its_shape() -> None:
    figures = Figures()

    figures.note_runs("q", "t", *batch([float(each) for each in range(1, 1001)]))

    median = percentile_ms(figures.by_task["q", "t"].runs, 0.5, 1_000)
    assert median is not None
    assert 400 < median < 600


@given(st.lists(st.integers(1, 100), min_size=1, max_size=40))
def test_a_hundred_thousand_quick_runs_are_all_counted_though_few_are_looked_at(sizes: list[int]) -> None:
    figures = Figures()
    for size in sizes * 50:
        figures.note_runs("q", "t", *batch([0.01] * size))

    (told,) = figures.take()

    counted = task_figures_of(told[2:])
    assert counted.ended == sum(counted.runs.values()) == 50 * sum(sizes)


def test_what_is_taken_is_the_same_when_it_is_added_elsewhere() -> None:
    worker, book = Figures(), Figures()
    worker.note("shop.charge", "default", 12.5, 3.25, "succeeded")
    worker.note("shop.charge", "default", None, 4.0, "retried")
    worker.note("shop.mail", "mail", 1.0, 2.0, "buried")

    told = worker.take()
    book.add(told)
    book.add(told)

    assert not worker
    charge = book.by_task["default", "shop.charge"]
    assert (charge.succeeded, charge.retried, charge.ended, charge.failed) == (2, 2, 4, 2)
    assert charge.wait_sum_ms == 25.0
    assert sum(charge.waits.values()) == 2
    assert sum(charge.runs.values()) == 4
    assert task_figures_of(charge.plain()) == charge


@given(st.lists(st.floats(min_value=0, max_value=1e6).map(lambda ms: round(ms, 3))), st.randoms())
def test_sums_are_the_same_in_whatever_order_they_are_added(sums_ms: list[float], random: Random) -> None:
    def total(parts: list[float]) -> float:
        together = TaskFigures()
        for part in parts:
            together.add(TaskFigures(run_sum_ms=part))
        return together.run_sum_ms

    shuffled = random.sample(sums_ms, len(sums_ms))

    assert total(shuffled) == total(sums_ms)


def test_runs_of_a_batch_are_counted_by_how_they_ended_and_waits_of_first_attempts_only() -> None:
    figures = Figures()
    first = Delivery(1, MessageId("a"), TaskName("t"), b"", enqueued_at_ms=1_000)
    later = Delivery(2, MessageId("b"), TaskName("t"), b"", enqueued_at_ms=1_000, deliveries=1)
    run = Run("w", "n", 1_500, 20.0)

    ended = [Ack(first, run=run), RetryAt(later, run=run), Bury(later, "bad", run=run)]
    figures.note_runs("q", "t", ended, [20.0] * 3)

    counted = figures.by_task["q", "t"]
    assert (counted.succeeded, counted.retried, counted.buried) == (1, 1, 1)
    assert counted.wait_sum_ms == 500
    assert counted.run_sum_ms == 60


def test_a_clock_that_goes_back_gives_no_negative_wait() -> None:
    figures = Figures()
    delivery = Delivery(1, MessageId("a"), TaskName("t"), b"", enqueued_at_ms=2_000)

    figures.note_runs("q", "t", [Ack(delivery, run=Run("w", "n", 1_500, 1.0))], [1.0])

    assert figures.by_task["q", "t"].wait_sum_ms == 0


def test_more_tasks_than_a_page_can_show_are_counted_together() -> None:
    figures = Figures()

    for number in range(MOST_TASKS + 50):
        figures.note(f"t{number}", "q", 1.0, 1.0, "succeeded")

    assert len(figures.by_task) == MOST_TASKS + 1
    assert figures.by_task["q", OTHER].succeeded == 50
