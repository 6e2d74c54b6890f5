"""How long tasks are expected to run, and how many go into a batch."""

from mqworker.actors.dispatcher.run_times import LARGEST_BATCH, RunTimes


def test_a_task_that_was_never_seen_has_no_expectation_and_travels_alone() -> None:
    times = RunTimes()

    assert times.of(b"shop.resize") is None
    assert times.batch_size() == 1


def test_a_batch_holds_about_ten_milliseconds_of_work() -> None:
    times = RunTimes()

    times.note({"shop.price": (100, 50.0)})

    assert times.of(b"shop.price") == 0.5
    assert times.batch_size() == 20


def test_a_batch_has_an_upper_bound_however_quick_the_task_is() -> None:
    times = RunTimes()

    times.note({"shop.noop": (1_000, 0.0)})

    assert times.batch_size() == LARGEST_BATCH


def test_a_slow_task_is_travelling_alone_after_its_first_run() -> None:
    times = RunTimes()

    times.note({"shop.report": (1, 5_000.0)})

    assert times.batch_size() == 1


def test_an_expectation_rises_at_once_and_falls_slowly() -> None:
    times = RunTimes()

    times.note({"shop.price": (1, 1.0)})
    times.note({"shop.price": (1, 100.0)})
    risen = times.of(b"shop.price")
    times.note({"shop.price": (1, 0.0)})
    fallen = times.of(b"shop.price")

    assert risen == 100.0
    assert fallen == 80.0
