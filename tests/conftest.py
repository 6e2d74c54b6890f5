"""What all tests share: Hypothesis does not measure time, and no test leaves a server or a node behind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.left_behind import end_those_left, make_root, running

# The machine may be busy with other tests.
settings.register_profile("mqworker", deadline=None)
settings.load_profile("mqworker")

ROOT = make_root()
_PURE = ("unit", "architecture", "typing")
_wide_directories: set[str] = set()
"""Where processes of fixtures work that live longer than one test: they may be started again in one."""


def pytest_sessionfinish(exitstatus: int) -> None:
    """Keep what a failed test left on disk."""
    if exitstatus == 0:
        shutil.rmtree(ROOT, ignore_errors=True)


def _is_pure(request: pytest.FixtureRequest) -> bool:
    return request.path.relative_to(Path(__file__).parent).parts[0] in _PURE


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the test that leaves a process behind; what fixtures of a module started is theirs to end."""
    if _is_pure(request) or "docs" in request.path.parts:  # pages run beside each other
        yield
        return
    before = running(ROOT)
    _wide_directories.update(process.directory for process in before.values())
    yield
    left = end_those_left(ROOT, _wide_directories, set(before))
    assert left == [], "the test left these behind"


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left_behind_by_fixtures(request: pytest.FixtureRequest) -> Iterator[None]:
    """The same for the fixtures of a module."""
    if _is_pure(request):
        yield
        return
    before = running(ROOT)
    yield
    left = end_those_left(ROOT, {process.directory for process in before.values()}, set(before))
    assert left == [], "fixtures of the module left these behind"
