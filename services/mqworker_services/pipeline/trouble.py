"""What goes wrong inside Spark, as one sentence: its own errors fill a screen and hide ours in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mqworker.errors import MqworkerError

_OURS: Final = re.compile(r"^(?:mqworker|services)\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"\[([A-Z_.]+)\] (.+)")


class SparkFailed(MqworkerError):
    """Look at the log of Spark: it gave up."""


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn errors of Spark into ours."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with PySpark, which is optional
    from pyspark.errors import PySparkException  # noqa: PLC0415 - same

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(sentence(str(error))) from error


def sentence(text: str) -> str:
    """Our own error if one is in the text, else the first thing that Spark says."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1])
    named = _CLASS.search(text)
    return f"Spark: {named.group(2)}" if named else f"Spark: {text.strip().partition(chr(10))[0]}"
