"""A compaction to be killed: `python -m tests.pipeline.compactor_process LAKE TODAY WHEN`.

Kills itself with SIGKILL: as soon as Spark has written something (`writing`), when all is written and not
noted yet (`write_note`), when it is noted (`noted`), before the new folder is put in place (`install`), after
the first of the old ones is gone (`rmtree`), or before the note is dropped (`unlink`). The last three only
carry out what a note says, and start no Spark.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Final

from mqworker_services.pipeline import compaction
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.session import open_session
from tests.pipeline.quick_java import QUICK_CONF

WITH_SPARK: Final = ("writing", "write_note", "noted")
WITHOUT_SPARK: Final = ("install", "rmtree", "unlink")


def die(*_: object, **__: object) -> None:
    """End at once, with nobody asked."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_when_written(folder: Path) -> None:
    """Die when Spark has begun to write files."""
    while not any(path.is_file() and path.suffix == ".parquet" for path in folder.rglob("*")):
        time.sleep(0.001)
    die()


def arrange(when: str, lake: Lake) -> None:
    """Have it die there."""
    real_write, real_remove = compaction.write_note, shutil.rmtree
    removed: list[object] = []

    def note_and_die(file: Path, content: dict[object, object]) -> None:
        real_write(file, content)
        die()

    def remove_one(path: Path, *, ignore_errors: bool = False) -> None:
        if path.name.startswith("batch=0"):  # a folder of the archiver
            if removed:
                die()
            removed.append(path)
        real_remove(path, ignore_errors=ignore_errors)

    if when == "writing":
        threading.Thread(target=die_when_written, args=(lake.compaction,), daemon=True).start()
    elif when == "noted":
        compaction.write_note = note_and_die  # type: ignore[assignment]
    elif when == "rmtree":
        compaction.shutil.rmtree = remove_one  # type: ignore[assignment]
    elif when == "unlink":
        Path.unlink = die  # type: ignore[method-assign]
    else:
        setattr(compaction, when, die)


def main(lake_folder: str, today: str, when: str) -> None:
    """Compact, or carry out a note, and die."""
    lake = Lake(Path(lake_folder))
    if when in WITH_SPARK:
        spark = open_session("compactor", master="local[2]", conf=QUICK_CONF)
        arrange(when, lake)
        compaction.compact(spark, lake, today)
    else:
        arrange(when, lake)
        compaction.finish_swaps(lake)


if __name__ == "__main__":
    main(*sys.argv[1:])
