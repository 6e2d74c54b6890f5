"""A compaction to be killed: `python -m tests.pipeline.compactor_process LAKE TODAY WHEN`.

Kills itself with SIGKILL: as soon as something is written (`writing`), when all is written and not committed
(`written`), or right after the first commit (`committed`).
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from mqworker_services.pipeline import compaction
from mqworker_services.pipeline.engine import LocalEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.parquet_files import DayFiles
from mqworker_services.pipeline.table import LakeTable

MOMENTS: Final = ("writing", "written", "committed")


def die(*_: object, **__: object) -> None:
    """End at once, with nobody asked."""
    os.kill(os.getpid(), signal.SIGKILL)


def arrange(when: str) -> None:
    """Have it die there."""
    rewrite = LakeTable.rewrite
    match when:
        case "writing":
            DayFiles.close = die  # type: ignore[method-assign, assignment]
        case "written":
            LakeTable.rewrite = die  # type: ignore[method-assign, assignment]
        case "committed":

            def rewrite_and_die(*arguments: object) -> None:
                rewrite(*arguments)  # type: ignore[arg-type]
                die()

            LakeTable.rewrite = rewrite_and_die  # type: ignore[method-assign, assignment]


def main(lake: str, today: str, when: str) -> None:
    """Compact, and die."""
    arrange(when)
    compaction.compact(LocalEngine(), Lake.at(lake), today)


if __name__ == "__main__":
    main(*sys.argv[1:])
