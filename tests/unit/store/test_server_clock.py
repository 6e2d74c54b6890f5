"""Whether the server's clock was set, seen from one that nobody sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.server_clock import LEAST_STEP_MS, ServerClock

SERVER_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize("by_ms", [HOUR_MS, -HOUR_MS, 24 * HOUR_MS, 2_000, -2_000])
def test_a_step_is_noticed_once(by_ms: int) -> None:
    clock = ServerClock()
    clock.note(SERVER_MS, 500, 500)

    stepped = clock.note(SERVER_MS + 1_000 + by_ms, 1_500, 1_500)
    afterwards = clock.note(SERVER_MS + 2_000 + by_ms, 2_500, 2_500)

    assert (stepped, afterwards, clock.steps) == (by_ms, 0, 1)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.integers(0, 60_000), st.floats(0, 1)), max_size=20))
def test_slow_answers_are_no_steps(looks: list[tuple[int, int, float]]) -> None:
    clock, now_ms = ServerClock(), 0
    for pause_ms, answer_ms, part in looks:
        asked_ms = now_ms + pause_ms
        now_ms = asked_ms + answer_ms
        server_ms = SERVER_MS + asked_ms + int(part * answer_ms)

        assert clock.note(server_ms, asked_ms, now_ms) == 0


def test_what_an_answer_may_take_is_no_step() -> None:
    clock = ServerClock()
    clock.note(SERVER_MS, 0, 0)

    assert clock.note(SERVER_MS + LEAST_STEP_MS - 1, 0, 0) == 0


def test_the_latest_step_is_known_with_its_age() -> None:
    clock = ServerClock()
    clock.note(1_000_000, 0, 0)
    assert clock.latest_step(5) is None

    clock.note(1_000_000 + 3_600_000 + 500, 500, 500)
    clock.note(1_000_000 + 3_600_000 + 900, 900, 900)

    assert clock.latest_step(1_500) == {"by_ms": 3_600_000, "ago_ms": 1_000}
