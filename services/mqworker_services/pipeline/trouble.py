"""What goes wrong inside Spark, as one sentence: its own errors fill a screen and hide ours in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mqworker.errors import MqworkerError

_OURS: Final = re.compile(r"^(?:mqworker|mqworker_services)\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_CLASS: Final = re.compile(r"\[([A-Z_.]+)\] (.+)")
_PYTHON: Final = re.compile(
    r"^(?!java|org|scala|py4j)((?:\w+\.)*\w*(?:Error|Exception|NotFound): .+)$", re.MULTILINE
)
"""The last line of a traceback on an executor: the true reason, which Spark wraps in three of its own."""
_NO_PYTHON: Final = re.compile(r'Cannot run program "[^"]+"[^\n]*')
_NO_JVM: Final = re.compile(
    r"Answer from Java side is empty|Connection refused|while sending command|Broken pipe"
    r"|An error occurred while calling \S+\s*\Z"  # with nothing after it: Java could not say what
)

_JVM_GONE: Final = (
    "Spark's Java process is gone: it was killed, or the machine is out of memory; what was under way was "
    "not committed, run the command again"
)


class SparkFailed(MqworkerError):
    """Look at the log of Spark: it gave up."""


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn errors of Spark into ours; one that an executor raised keeps its class."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - comes with PySpark, which is optional
    from pyspark.errors import PySparkException  # noqa: PLC0415 - same

    # What py4j logs of a lost connection is a traceback for each call; the sentence says it once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4j)
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise ours(str(error)) from error
    except (ConnectionError, EOFError) as error:
        raise SparkFailed(_JVM_GONE) from error
    finally:
        logging.getLogger().removeFilter(_is_not_py4j)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


def ours(text: str) -> MqworkerError:
    """The error of ours that Spark's text tells of; SparkFailed when it is none."""
    found = _OURS.findall(text)
    if not found:
        return SparkFailed(sentence(text))
    name, told = found[-1]
    kind = next((each for each in _family(MqworkerError) if each.__name__ == name), SparkFailed)
    return kind(told)


def sentence(text: str) -> str:
    """Our own error if one is in the text, else the first thing that Spark says."""
    found = _OURS.findall(text)
    if found:
        return str(found[-1][1])
    if _NO_JVM.search(text):
        return _JVM_GONE
    of_executor = _NO_PYTHON.search(text) or (_PYTHON.findall(text) or [None])[-1]
    if of_executor is not None:
        told = of_executor if isinstance(of_executor, str) else of_executor.group(0)
        return f"an executor failed: {told}"
    named = _CLASS.search(text)
    return f"Spark: {named.group(2)}" if named else f"Spark: {text.strip().partition(chr(10))[0]}"


def _family(kind: type[MqworkerError]) -> Iterator[type[MqworkerError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _family(each)
