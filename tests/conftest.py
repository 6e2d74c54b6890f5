"""What all tests share: Hypothesis does not measure time, and no test leaves a server or a node behind."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.left_behind import end_those_left, make_root, running

# Our own plugin forbids them, for the tests of others.
os.environ.setdefault("MQWORKER_EMBEDDED", "auto")
# The machine may be busy with other tests.
settings.register_profile("mqworker", deadline=None)
settings.load_profile("mqworker")

ROOT = make_root()
_PURE = ("unit", "architecture", "typing")
_test_by_pid: dict[int, str] = {}
"""After which test each process was seen first: it, or one of its fixtures, started it."""


@pytest.fixture(autouse=True)
def _notes_what_it_starts(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.path.relative_to(Path(__file__).parent).parts[0] not in _PURE:
        for pid in running(ROOT):
            _test_by_pid.setdefault(pid, request.node.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """No test leaves a server or a node behind: by now all fixtures have ended what they started.

    What failed tests left on disk is kept.
    """
    left = end_those_left(ROOT)
    for process in left:
        told = _test_by_pid.get(process.pid, "a test")
        where = f"{process.pid} in {process.directory}: {process.command}"
        sys.stderr.write(f"\n{told} left a process behind: {where}\n")
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif exitstatus == 0:
        shutil.rmtree(ROOT, ignore_errors=True)
