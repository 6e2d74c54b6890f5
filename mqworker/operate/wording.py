"""How numbers, times and foreign text are shown to people: short, aligned, and unable to harm a terminal."""

from __future__ import annotations

from datetime import UTC, datetime

from mqworker.redaction import masked_text

NOTHING = "–"  # noqa: RUF001 - an en dash: no value is known
LONGEST_TEXT = 500

_SECOND_MS, _MINUTE_MS, _HOUR_MS, _DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
_LARGEST_PLAIN = 99_999
_THOUSAND = 1_000
_MILLION = 1_000_000
_KIB = 1_024
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_TENTHS_BELOW = 9.95


def counted(number: int, noun: str) -> str:
    """1 message, 1,204 messages."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short_count(number: int) -> str:
    """At most six characters: 99,999, then 100k, 1.2M."""
    if number <= _LARGEST_PLAIN:
        return f"{number:,}"
    if number < _MILLION:
        return f"{number // _THOUSAND}k"
    value, unit = (
        (number / _MILLION, "M") if number < _MILLION * _THOUSAND else (number / _MILLION / _THOUSAND, "G")
    )
    return f"{value:.1f}{unit}" if value < _TENTHS_BELOW else f"{value:.0f}{unit}"


def rate(per_second: float | None) -> str:
    """Messages per second."""
    if per_second is None:
        return NOTHING
    if 0 < per_second < _TENTHS_BELOW:
        return f"{per_second:.1f}"
    return short_count(round(per_second))


def duration(ms: float) -> str:
    """In the two largest units that matter: 340 ms, 12 s, 3 min 2 s, 2 h 13 min, 5 d 3 h."""
    whole = max(0, int(ms))
    if whole < _SECOND_MS:
        return f"{whole} ms"
    if whole < _MINUTE_MS:
        return f"{whole // _SECOND_MS} s"
    if whole < _HOUR_MS:
        return _two(whole, _MINUTE_MS, "min", _SECOND_MS, "s")
    if whole < _DAY_MS:
        return _two(whole, _HOUR_MS, "h", _MINUTE_MS, "min")
    return _two(whole, _DAY_MS, "d", _HOUR_MS, "h")


_SHORTEST_MS = 0.01


def precise_duration(ms: float | None) -> str:
    """A measured time, in three digits: 0.04 ms, 3.2 ms, 140 ms, 2.1 s, 3 min 2 s."""
    if ms is None:
        return NOTHING
    if 0 < ms < _SHORTEST_MS:
        return f"< {_SHORTEST_MS} ms"
    if ms < _SECOND_MS:
        return f"{ms:.2f} ms" if ms < 1 else f"{ms:.3g} ms"
    return f"{ms / _SECOND_MS:.1f} s" if ms < _MINUTE_MS else duration(ms)


def short_duration(ms: float | None) -> str:
    """In one unit, for a column: 340 ms, 12 s, 3 min, 2 h, 5 d."""
    if ms is None:
        return NOTHING
    return " ".join(duration(ms).split(" ")[:2])


def moment(at_ms: int, now_ms: int) -> str:
    """The local time of day, with the date where it is another one."""
    at, now = _local(at_ms), _local(now_ms)
    return at.strftime("%H:%M:%S" if at.date() == now.date() else "%Y-%m-%d %H:%M:%S")


def size(count: int) -> str:
    """Bytes in the unit that fits."""
    power = min(len(_SIZE_UNITS) - 1, max(0, count.bit_length() - 1) // 10)
    value = count / _KIB**power
    return (
        f"{value:.1f} {_SIZE_UNITS[power]}"
        if power and value < _TENTHS_BELOW
        else f"{value:.0f} {_SIZE_UNITS[power]}"
    )


def safe(text: str, longest: int = LONGEST_TEXT) -> str:
    """Foreign text on one line: secrets masked, whatever a terminal would act on escaped, cut to a length."""
    return escaped(cut(masked_text(text), longest))


def escaped(text: str) -> str:
    """Control characters, line ends, bidi overrides and surrogates become escapes that can be read."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def cut(text: str, longest: int) -> str:
    """The beginning of a text, with an ellipsis where something is missing."""
    return text if len(text) <= longest else f"{text[: max(0, longest - 1)]}…"


def _two(ms: int, large_ms: int, large: str, small_ms: int, small: str) -> str:
    rest = ms % large_ms // small_ms
    return f"{ms // large_ms} {large} {rest} {small}" if rest else f"{ms // large_ms} {large}"


def _local(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
