"""Statistics: what dispatchers wrote, added up over nodes and stretches; what is foreign is passed over."""

from __future__ import annotations

import pytest

from mqworker.actors.dispatcher.figures import FiguresBook
from mqworker.errors import InvalidArgument
from mqworker.model.figures import Figures
from mqworker.operate.figures import read_statistics
from mqworker.operate.system import System
from mqworker.queues.work.figures import MINUTES, figures_key

DAY_MS = 24 * 3600 * 1000


def count(
    system: System, consumer: str, runs: int, *, task: str = "shop.charge", queue: str = "mail"
) -> None:
    figures = Figures()
    for number in range(runs):
        outcome = "retried" if number % 10 == 0 else "succeeded"
        figures.note(task, queue, 100.0, 10.0 + number % 5, outcome)
    book = FiguresBook(system.settings.namespace, consumer, system.store.run)
    book.add(figures.take(), 0)
    book.write(0)


@pytest.mark.parametrize("last_ms", [60_000, 900_000, DAY_MS])
def test_the_runs_of_all_nodes_are_added_up_at_every_resolution(system: System, last_ms: int) -> None:
    count(system, "a.1.1", 100)
    count(system, "b.1.1", 50)
    count(system, "b.1.1", 7, task="shop.mail", queue="other")

    found = read_statistics(system, last_ms)

    charge, mail = found.rows
    assert (charge.task, charge.runs, charge.failed, mail.runs) == ("shop.charge", 150, 15, 7)
    assert sum(charge.spread) == 150
    assert charge.wait_ms[1] == pytest.approx(100, rel=0.13)
    assert charge.run_ms[0] == pytest.approx(12, rel=0.13)
    assert charge.run_ms[3] == 14
    assert len(found.at_s) == len(found.runs_per_s) == len(found.wait_p95_ms)


def test_a_queue_or_a_task_can_be_asked_for(system: System) -> None:
    count(system, "a.1.1", 3)
    count(system, "a.1.2", 4, task="shop.mail", queue="other")

    assert [row.queue for row in read_statistics(system, 60_000, queue="other").rows] == ["other"]
    assert [row.task for row in read_statistics(system, 60_000, task="charge").rows] == ["shop.charge"]


def test_nothing_ran_is_no_error(system: System) -> None:
    assert read_statistics(system, DAY_MS).rows == ()


def test_foreign_bytes_among_the_figures_are_passed_over(system: System) -> None:
    count(system, "a.1.1", 3)
    now = MINUTES.number(system.now_ms())
    key = figures_key(system.settings.namespace, (MINUTES, now))
    bad = [
        "q t c",
        b"\xff",
        "q t",
        b"\x90",
        "x",
        "y",
        "q t d",
        b"\x93\x01\x02\x03",
        "q t e",
        b"\x9a" + b"\xa1x" * 8 + b"\x90\x90",
    ]
    system.store.send([("HSET", key, *bad)], key)

    assert [row.runs for row in read_statistics(system, 120_000).rows] == [3]


@pytest.mark.parametrize("last_ms", [0, -1, DAY_MS + 1])
def test_only_a_day_is_kept(system: System, last_ms: int) -> None:
    with pytest.raises(InvalidArgument, match="up to a day"):
        read_statistics(system, last_ms)


def test_what_is_kept_has_an_end(system: System) -> None:
    count(system, "a.1.1", 3)
    key = figures_key(system.settings.namespace, (MINUTES, MINUTES.number(system.now_ms())))

    (ttl_ms,) = system.store.send([("PTTL", key)], key)

    assert isinstance(ttl_ms, int)
    assert 0 < ttl_ms <= 2 * 3600 * 1000
