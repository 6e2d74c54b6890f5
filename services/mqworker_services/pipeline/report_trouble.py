"""What Spark says when a lake cannot be read, in one sentence with the name of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report_files import UnreadableLake

_DAMAGED: Final = re.compile(r"UnreadableLake: (the file .+ is damaged .+)")
_CHANGED: Final = "FileNotFoundError"


@contextmanager
def trouble_in_a_sentence(lake: Lake) -> Iterator[None]:
    """Errors of Spark over this lake become UnreadableLake."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with PySpark, which is optional
    from pyspark.errors import PySparkException  # noqa: PLC0415 - same

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise UnreadableLake(sentence(lake, str(error))) from error


def sentence(lake: Lake, said: str) -> str:
    """What to tell about an error of Spark."""
    if _CHANGED in said:
        return f"the lake {lake.root} changed while it was read (a compaction?); run the report again"
    found = _DAMAGED.search(said)
    if found:
        return found.group(1)
    first_line = (said.strip().splitlines() or ["no reason given"])[0]
    return f"Spark could not read the lake {lake.root}: {first_line}"
