"""The pytest plugin: fixtures that put an app on a bench. Nothing is imported before a test asks for one.

# conftest.py
@pytest.fixture
def mqworker_app():
    return shop.app

# test_shop.py
def test_a_mail_is_sent(bench): ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from mqworker.tasks.app import App
    from mqworker.testing.bench import Bench


def pytest_configure() -> None:
    """No test starts a server by mistake: whoever means to says so with MQWORKER_EMBEDDED=auto."""
    os.environ.setdefault("MQWORKER_EMBEDDED", "never")


@pytest.fixture
def mqworker_app() -> App:
    """The app of the fixture `bench`; to be overridden in a conftest.py."""
    pytest.fail(
        "the fixture `bench` needs an app: define a fixture `mqworker_app` that returns it, in conftest.py "
        "or beside the test; or use mqworker_bench(app)",
        pytrace=False,
    )


@pytest.fixture
def bench(mqworker_app: App, mqworker_bench: Callable[[App], Bench]) -> Bench:
    """The app of `mqworker_app` on a bench of its own, until the test ends."""
    return mqworker_bench(mqworker_app)


@pytest.fixture
def mqworker_bench() -> Iterator[Callable[[App], Bench]]:
    """Puts any app on a bench, until the test ends: call it with the app."""
    from mqworker.testing.bench import Bench  # noqa: PLC0415 - only now is it known to be needed

    with ExitStack() as opened:
        yield lambda app: opened.enter_context(Bench(app))
