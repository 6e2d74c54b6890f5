"""Text for the page: foreign words made harmless, figures made short, tables made of both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from mqworker.redaction import masked_text
from mqworker_services.pipeline.charts_scale import duration_label

NOTHING: Final = '<span class="none">–</span>'  # noqa: RUF001 - an en dash: there is no value
_TENTHS_BELOW: Final = 100
_HUNDREDTHS_BELOW: Final = 10


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already; everything else is escaped when it is put into a table."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and the class of its cells: none for numbers, `words` or `words long` for text."""

    heading: str
    style: str = ""


def clean(text: str) -> str:
    """Foreign text without secrets, and without what would change how the text around it is read."""
    masked = masked_text(text)
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "backslashreplace").decode()
        for each in masked
    )


def table(columns: Sequence[Column], rows: Iterable[Sequence[Markup | str]]) -> str:
    """A table that scrolls sideways where the window is too narrow."""
    head = "".join(f'<th scope="col"{_class(column)}>{escape(column.heading)}</th>' for column in columns)
    body = "".join(
        f"<tr>{''.join(_cell(*each) for each in zip(columns, row, strict=True))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def number(value: int) -> Markup:
    """A count; nothing is shown as such, so that the eye finds what is there."""
    return Markup(f"{value:,}" if value else NOTHING)


def time(ms: float | None) -> Markup:
    """A duration; no-break, so that the unit stays with its number."""
    return Markup(NOTHING if ms is None else escape(duration_label(ms)).replace(" ", "&nbsp;"))


def rate(per_second: float) -> str:
    """So many in a second, with as many digits as say something."""
    if per_second >= _TENTHS_BELOW:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= _HUNDREDTHS_BELOW else f"{per_second:.2g}"


def share(part: float, whole: float) -> str:
    """A share in percent; never rounded to all or nothing when it is neither."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:  # noqa: PLR2004 - half of the last digit shown
        return "< 0.1 %"
    return f"{min(percent, 99.9) if part < whole else percent:.1f} %"


def share_bar(part: float, whole: float) -> Markup:
    """A share as a small bar with its number."""
    percent = 100 * part / whole if whole else 0.0
    bar = f'<span class="share" aria-hidden="true"><i style="width:{percent:.1f}%"></i></span>'
    return Markup(f"{bar}{escape(share(part, whole))}")


def moment(at_ms: int) -> str:
    """An instant in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _cell(column: Column, value: Markup | str) -> str:
    if isinstance(value, Markup):
        return f"<td{_class(column)}>{value.text}</td>"
    return f'<td{_class(column)} title="{escape(value)}">{escape(value)}</td>'


def _class(column: Column) -> str:
    return f' class="{column.style}"' if column.style else ""
