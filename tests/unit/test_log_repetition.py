"""The same trouble thousands of times is told a few times, with the number left out."""

from __future__ import annotations

import io
import json

from mqworker.log import (
    MOST_REPEATED,
    MOST_TROUBLES,
    REPEATED_EVERY_MS,
    Repetition,
    configure_logging,
    get_logger,
)

FACTS = {"task": "shop.send", "error": "ValueError", "task_id": "1"}


def test_a_flood_of_one_trouble_is_a_hundred_lines_and_then_one_in_a_while() -> None:
    repetition = Repetition()

    said = [repetition.note("delivery_retried", FACTS, now_ms) for now_ms in range(5_000)]
    later = [repetition.note("delivery_retried", FACTS, REPEATED_EVERY_MS + each) for each in range(10)]
    much_later = repetition.note("delivery_retried", FACTS, 3 * REPEATED_EVERY_MS)

    assert [each for each in said if each is not None] == [0] * MOST_REPEATED
    assert later == [5_000 - MOST_REPEATED, *[None] * 9]
    assert much_later == 9


def test_other_tasks_errors_and_events_are_other_troubles() -> None:
    repetition = Repetition()
    for _ in range(1_000):
        repetition.note("delivery_retried", FACTS, 0)

    assert repetition.note("delivery_retried", FACTS, 0) is None
    assert repetition.note("delivery_buried", FACTS, 0) == 0
    assert repetition.note("delivery_retried", {**FACTS, "task": "shop.other"}, 0) == 0
    assert repetition.note("delivery_retried", {**FACTS, "error": "KeyError"}, 0) == 0


def test_a_trouble_that_comes_now_and_then_is_always_told() -> None:
    repetition = Repetition()

    assert {repetition.note("x", FACTS, 1_000 * second) for second in range(10_000)} == {0}


def test_what_is_remembered_is_bounded() -> None:
    repetition = Repetition()

    for number in range(10 * MOST_TROUBLES):
        assert repetition.note("x", {"task": f"t{number}", "error": "e" * 10_000}, 0) == 0

    assert len(repetition._seen) == MOST_TROUBLES


def test_only_warnings_of_a_logger_that_wants_it_are_left_out() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    try:
        sparing, plain = get_logger(part="tasks").without_repetition(), get_logger(part="user")
        for _ in range(300):
            sparing.warning("delivery_retried", **FACTS)
            sparing.info("delivery_succeeded", **FACTS)
            plain.warning("row_skipped", **FACTS)
    finally:
        configure_logging("warning", "auto")

    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    counts = {event: events.count(event) for event in set(events)}
    assert counts == {"delivery_retried": MOST_REPEATED, "delivery_succeeded": 300, "row_skipped": 300}
