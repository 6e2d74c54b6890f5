"""OpenMetrics text, written by hand: families of samples, each with its kind and a sentence. Pure.

No client library: the figures are kept where they happen, in Redis and by the supervisor, and are only
written down here. A label holds a name out of a closed set, or one that a programmer gave: a queue, a task,
an actor. Never an id, a tenant or a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Literal

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
END = "# EOF\n"
LONGEST_LABEL = 128

Kind = Literal["counter", "gauge", "histogram", "stateset", "info"]
Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""What the name of the family is followed by, the labels, the value."""


def family(name: str, kind: Kind, explanation: str, samples: Iterable[Sample]) -> Iterator[str]:
    """The lines of one family; nothing where there is no sample."""
    # repr: of the floats that round to the same value the shortest, and whole numbers exactly.
    lines = [f"{name}{suffix}{_labels(labels)} {value!r}\n" for suffix, labels, value in samples]
    if lines:
        yield f"# TYPE {name} {kind}\n# HELP {name} {_help(explanation)}\n"
        yield from lines


def page(families: Iterable[str]) -> str:
    """A whole answer."""
    return "".join(families) + END


@lru_cache(8_192)
def label(text: str) -> str:
    """A name as a label may hold it: whatever it was, one line, and not longer than names are."""
    plain = text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."
    if not plain.isprintable():
        plain = "".join(each if each.isprintable() else "?" for each in plain)
    return plain.replace("\\", "\\\\").replace('"', '\\"')


def _labels(labels: Labels) -> str:
    return (
        "{" + ",".join(f'{name}="{label(value)}"' for name, value in labels.items()) + "}" if labels else ""
    )


def _help(explanation: str) -> str:
    return explanation.replace("\\", "\\\\").replace("\n", " ").replace('"', '\\"')
