"""Each event counts where the documentation says it does."""

import pytest

from mqworker_services.pipeline.report.figures import (
    Cell,
    Counts,
    Histogram,
    bucket_of,
    groups,
    reasons,
    slowest,
    tally,
    whole,
)


def a_cell(
    event: str,
    *,
    key: str = "mail",
    error: str | None = None,
    run_ms: float | None = None,
    count: int = 3,
) -> Cell:
    bucket = None if run_ms is None else bucket_of(run_ms)
    longest = run_ms or 0.0
    return Cell(key, key, event, error, bucket, count, longest * count, longest)


@pytest.mark.parametrize(
    ("cell", "counts"),
    [
        (a_cell("enqueued"), Counts(enqueued=3)),
        (a_cell("succeeded", run_ms=2.0), Counts(succeeded=3, run_ms=6.0)),
        (a_cell("succeeded"), Counts(succeeded=3)),
        (a_cell("retried", error="ValueError", run_ms=2.0), Counts(failed=3, retried=3, run_ms=6.0)),
        (a_cell("retried", error="HardTimeout"), Counts(failed=3, retried=3)),
        (a_cell("buried", error="ValueError", run_ms=2.0), Counts(failed=3, dead=3, run_ms=6.0)),
        (a_cell("buried", error="HardTimeout"), Counts(failed=3, dead=3)),
        (a_cell("buried", error="WorkerCrashed"), Counts(crashes=3, dead=3)),
        (a_cell("buried", error="undecodable"), Counts(dead=3)),
        (a_cell("crashed"), Counts(crashes=3)),
        (a_cell("reclaimed"), Counts(reclaimed=3)),
        (a_cell("expired"), Counts(expired=3)),
        (a_cell("cancelled"), Counts(cancelled=3)),
        (a_cell("released"), Counts()),
        (a_cell("an event of tomorrow"), Counts()),
    ],
    ids=lambda value: f"{value.event} {value.error or ''}" if isinstance(value, Cell) else "",
)
def test_an_event_counts_as_documented(cell: Cell, counts: Counts) -> None:
    counts.events = 3

    assert tally([cell]) == counts


def test_started_is_the_sum_of_the_ways_in_which_a_run_ends() -> None:
    cells = [
        a_cell("succeeded"),
        a_cell("retried"),
        a_cell("crashed"),
        a_cell("buried", error="WorkerCrashed"),
    ]

    assert tally(cells).started == 12


def test_the_group_that_took_most_of_the_time_comes_first() -> None:
    cells = [
        a_cell("succeeded", run_ms=1.0),
        a_cell("succeeded", key="slow", run_ms=900.0),
        a_cell("enqueued"),
    ]

    found = groups(cells, {"mail": Histogram({bucket_of(5.0): 3}, 5.0)}, {})

    assert [(group.name, group.counts.events) for group in found] == [("slow", 3), ("mail", 6)]
    assert found[1].times.wait.percentile(50) == 5.0
    assert whole(found, cells).counts.succeeded == 6
    assert whole(found, cells).times.run.total == 6


def test_the_slowest_are_those_with_the_longest_p95_and_only_those_that_ran() -> None:
    cells = [a_cell("succeeded", key=f"t{ms}", run_ms=ms) for ms in (5.0, 500.0, 50.0)]

    found = slowest(groups([*cells, a_cell("enqueued", key="idle")], {}, {}), 2)

    assert [group.name for group in found] == ["t500.0", "t50.0"]


def test_reasons_join_failures_burials_and_crashes_by_task_and_error() -> None:
    cells = [
        a_cell("retried", error="ValueError", run_ms=1.0),
        a_cell("buried", error="ValueError", run_ms=9.0, count=1),
        a_cell("crashed", count=2),
        a_cell("succeeded", run_ms=1.0),
    ]

    found = reasons(cells, {("mail", "ValueError"): "no such user"})

    assert [(each.error, each.count, each.example) for each in found] == [
        ("ValueError", 4, "no such user"),
        ("crashed", 2, ""),
    ]
