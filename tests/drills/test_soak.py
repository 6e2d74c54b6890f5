"""The soak in the size of CI: everything that was called is answered, and nothing is left over."""

from __future__ import annotations

from pathlib import Path

from tests.drills.conftest import Report, Sized
from tests.drills.soak import Soak
from tests.support.real_server import RealServer


def test_after_tasks_of_every_kind_everything_is_as_before(
    tmp_path: Path, server: RealServer, sized: Sized, report: Report
) -> None:
    soak = Soak(tmp_path, server)
    try:
        figures = soak.run(seconds=sized(10, 120), per_s=sized(300, 1_500))
    finally:
        soak.close()

    report("; ".join(figures.lines()))
    figures.check()
