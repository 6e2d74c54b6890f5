"""Templates and what they call: every text escaped, numbers as they are stored, instants as elements."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mqworker.operate.picture import QueueView
from mqworker.operate.wording import (
    NOTHING,
    cut,
    duration,
    escaped,
    precise_duration,
    rate,
    safe,
    short_duration,
    size,
)
from mqworker.redaction import masked_text, masked_traceback

HERE = Path(__file__).parent
_QUEUE = re.compile(r"queue ([A-Za-z0-9_.-]+)")
_NODE = re.compile(r"node ([A-Za-z0-9_.-]+)")
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9_.-]")
_LONGEST_NAME, _LONGEST_CALL = 80, 160


def environment() -> Environment:
    """The templates, with autoescape on, whatever a file is called."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "count": lambda number: NOTHING if number is None else f"{number:,}",
        "rate": rate,
        "duration": lambda ms: NOTHING if ms is None else duration(ms),
        "short": short_duration,
        "precise": precise_duration,
        "size": size,
        "text": lambda text: safe(str(text)),
        "name": lambda text: safe(str(text), _LONGEST_NAME),
        "lines": lambda text: "\n".join(escaped(line) for line in str(text).splitlines()),
        "cut": cut,
        "call": call_text,
        "instant": instant,
        "json": lambda value: json.dumps(value, separators=(",", ":")),
        "bars": bars,
        "told": told,
        "anchor": lambda text: _NO_ANCHOR.sub("_", str(text))[:_LONGEST_NAME],
        "masked": lambda text: masked_text(str(text)),
        "masked_traceback": lambda text: masked_traceback(str(text)),
    }
    made.tests |= {"search_word": lambda text, word: word in text}
    made.globals |= {"query": query, "place_of": place_of, "nothing": NOTHING, "total": total, "meter": meter}
    return made


def instant(at_ms: int | None) -> Markup | str:
    """A time element: UTC until a script turns it into the viewer's zone."""
    if at_ms is None:
        return NOTHING
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return escaped(str(at_ms))
    utc = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    pattern = '<time datetime="{}" data-ms="{}" title="{}">{}</time>'
    return Markup(pattern).format(at.isoformat(), at_ms, utc, utc)  # noqa: S704 - a fixed pattern, its parts escaped


def told(text: str) -> Markup:
    """A sentence in which what stands between backticks is code."""
    parts = safe(text).split("`")
    if len(parts) % 2 == 0:
        return escape(safe(text))
    pattern = "".join("<code>{}</code>" if at % 2 else "{}" for at in range(len(parts)))
    return Markup(pattern).format(*parts)  # noqa: S704 - a fixed pattern, its parts escaped


def query(**parts: str | None) -> str:
    """The query of a link: whatever a name holds, it stays a value."""
    return urlencode({name: value for name, value in parts.items() if value})


def place_of(reason: str) -> str | None:
    """Where a sentence of the verdict leads: to its queue, or to its node on the page."""
    queue = _QUEUE.match(reason)
    if queue:
        return f"/queue?{query(name=queue[1])}"
    node = _NODE.search(reason)
    return f"/#node-{node[1]}" if node else None


def call_text(arguments: Mapping[str, Any]) -> str:
    """Arguments as one writes them in a call."""
    positional = [json.dumps(each, ensure_ascii=False) for each in arguments["args"]]
    named = [f"{name}={json.dumps(each, ensure_ascii=False)}" for name, each in arguments["kwargs"].items()]
    return cut(", ".join([*positional, *named]), _LONGEST_CALL)


def meter(share: float, kind: str = "") -> Markup:
    """A bar that is filled so far, from 0 to 1."""
    width = round(min(1.0, max(0.0, share)) * 100, 1)
    pattern = (
        '<svg class="meter {}" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">'
        '<rect width="{}" height="8"/></svg>'
    )
    return Markup(pattern).format(kind, width)  # noqa: S704 - a fixed pattern, its parts escaped


def total(queues: Iterable[QueueView], counter: str) -> int:
    """One counter of all queues together; one that cannot be read has none."""
    return sum(queue.totals.get(counter, 0) for queue in queues)


def bars(values: Sequence[float], height: int) -> list[tuple[int, float, float]]:
    """The bars of a small chart: position, top, height; what is there is at least a pixel high."""
    most = max(values, default=0) or 1
    tall = [(at, max(1.0, value / most * height)) for at, value in enumerate(values) if value]
    return [(at, round(height - each, 1), round(each, 1)) for at, each in tall]
