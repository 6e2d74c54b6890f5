"""Scenes on real servers, the size of the drills, and one line from each drill at the end of the run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.drills.scene import Scene
from tests.support.real_server import RealServer

SIZE_VARIABLE = "DRILL_SIZE"
IS_FULL: Final = os.environ.get(SIZE_VARIABLE, "ci") == "full"

MakeScene = Callable[..., Scene]
Report = Callable[[str], None]
Sized = Callable[[int, int], int]

_lines: list[str] = []


@pytest.fixture
def sized() -> Sized:
    """The first number in CI, the second with DRILL_SIZE=full (`make drills`)."""
    return lambda ci, full: full if IS_FULL else ci


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Report:
    """Say how often the drill really struck; shown now with -s, and at the end of the run."""

    def note(text: str) -> None:
        line = f"{request.node.name.removeprefix('test_')}: {text}"
        _lines.append(line)
        print(f"\n  {line}")  # noqa: T201 - that is what -s is for

    return note


@pytest.fixture
def make_scene(tmp_path: Path) -> Iterator[MakeScene]:
    """Scenes by the address of their server; closed before the server is."""
    numbers = itertools.count()
    with ExitStack() as closing:

        def make(url: str, **settings: object) -> Scene:
            scene = Scene(tmp_path / f"scene-{next(numbers)}", url, **settings)
            closing.callback(scene.close)
            return scene

        yield make


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A server that keeps nothing: for drills that do not kill it."""
    with RealServer() as running:
        yield running


@pytest.fixture
def scene(server: RealServer, make_scene: MakeScene) -> Scene:
    """The usual scene."""
    return make_scene(server.url)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line from each drill."""
    if _lines:
        terminalreporter.section("drills: how often they struck")
        for line in _lines:
            terminalreporter.write_line(line)
