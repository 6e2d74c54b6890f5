"""Log: events as JSON or console lines, from which no secret leaks and into which no value can forge a line.

A line is made by processors of structlog, one list for our loggers and for the standard `logging` of tasks:
first those that add facts (`add_processors`), then those that bound, mask and render them. Loggers read the
configuration when they write, so one made before `configure_logging` follows it too. The global configuration
of structlog is left alone: it belongs to the application (decision 23).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TextIO

from mqworker.model.clock import SystemClock
from mqworker.redaction import MASK, is_secret_name, masked_text, masked_traceback

if TYPE_CHECKING:  # importing it takes 40 ms, see `_processors`
    import logging

    from structlog.typing import Processor

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]

LONGEST_VALUE = 2_000
DEEPEST_VALUE = 3
MOST_ITEMS = 64
LARGEST_INT_BITS = 64
_CLOCK = SystemClock()
RANK_BY_LEVEL: dict[LogLevel, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MOST_REPEATED, REPEATED_EVERY_MS, MOST_TROUBLES = 100, 10_000, 500
_SAMENESS, _LONGEST_KEY = ("task", "error", "reason"), 200
# Names the line itself uses; a fact of the same name gets an underscore instead of replacing them.
OWN_NAMES = frozenset({"event", "level", "timestamp", "exception"})


class Repetition:
    """The same trouble again and again: a hundred lines, then one in ten seconds with the number left out.

    The same is what has the same event, task and error, whatever its id and numbers are.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, int, int]] = {}
        """Since when a trouble is counted, how many lines it may have, and how often it came since then."""

    def note(self, event: str, facts: Mapping[str, object], now_ms: int) -> int | None:
        """How many were left out before this one; None: this one is left out, too."""
        key = (event, *(str(facts.get(name))[:_LONGEST_KEY] for name in _SAMENESS))
        since_ms, allowed, count = self._seen.pop(key, (now_ms, MOST_REPEATED, 0))
        unsaid = 0
        if now_ms - since_ms >= REPEATED_EVERY_MS:
            unsaid = max(0, count - allowed)
            since_ms, allowed, count = now_ms, 1 if unsaid else MOST_REPEATED, 0
        while len(self._seen) >= MOST_TROUBLES:
            del self._seen[next(iter(self._seen))]  # the one that was quiet longest
        self._seen[key] = since_ms, allowed, count + 1
        return unsaid if count < allowed else None


class Logger:
    """Writes events with the facts bound to it; never raises into its caller."""

    __slots__ = ("_bound", "_repetition")

    def __init__(self, bound: Mapping[str, object], repetition: Repetition | None = None) -> None:
        self._bound = bound
        self._repetition = repetition

    def bind(self, **facts: object) -> Logger:
        """A logger that adds these facts to every event."""
        return Logger({**self._bound, **facts}, self._repetition)

    def without_repetition(self) -> Logger:
        """A logger that does not write the same trouble thousands of times."""
        return Logger(self._bound, Repetition())

    def debug(self, event: str, /, **facts: object) -> None:
        """Write what helps to follow one message."""
        self._log("debug", event, facts)

    def info(self, event: str, /, **facts: object) -> None:
        """Write what an operator expects to happen."""
        self._log("info", event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        """Write what an operator should know of."""
        self._log("warning", event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        """Write what an operator must act on."""
        self._log("error", event, facts)

    def exception(self, event: str, /, **facts: object) -> None:
        """Write an error together with the traceback of the exception being handled."""
        self._log("error", event, {"exc_info": True, **facts})

    def _log(self, level: LogLevel, event: str, facts: dict[str, object]) -> None:
        if RANK_BY_LEVEL[level] < _active.lowest_rank:
            return
        facts = {**self._bound, **facts}
        if self._repetition is not None and RANK_BY_LEVEL[level] >= RANK_BY_LEVEL["warning"]:
            unsaid = self._repetition.note(event, facts, _CLOCK.monotonic_ms())
            if unsaid is None:
                return
            facts |= {"unsaid": unsaid} if unsaid else {}
        _active.log(level, event, facts)


def configure_logging(level: LogLevel, log_format: LogFormat, stream: TextIO | None = None) -> None:
    """Send the lines of this process from `level` upwards to `stream`, by default stderr."""
    _active.direct(level, log_format, stream)


def add_processors(*processors: Processor) -> None:
    """Let processors of structlog add facts to every line of this process, those of `logging` included.

    They see the facts as they were given; what they add is bounded and masked like all others.
    """
    _active.processors += processors


@contextmanager
def keep_processors() -> Iterator[None]:
    """For tests: forget at its end what was added in the block."""
    before = _active.processors
    try:
        yield
    finally:
        _active.processors = before


def capture_standard_logging(**bound: object) -> None:
    """Write what the application says by `logging` as lines like ours, from the same level upwards.

    What the application configures itself comes later and wins.
    """
    import logging  # noqa: PLC0415 - only workers need it

    # Any: structlog's own types of a processor.
    def add_bound(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
        return {**bound, **facts}

    class Bridge(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            with suppress(Exception):  # as in `log`
                added = (add_bound, *_active.processors)
                return _formatter(added, is_console=_active.is_console).format(record)
            return _failed_line(record.levelname.lower())

    handler = logging.StreamHandler(_active.stream)
    handler.setFormatter(Bridge())
    logging.basicConfig(handlers=[handler], level=_active.lowest_rank, force=True)


def get_logger(**bound: object) -> Logger:
    """A logger that adds `bound` to every event: an actor binds its name and pid once."""
    return Logger(bound)


class _Output:
    """Where lines go and how they look. Until configured: warnings and errors, to stderr."""

    __slots__ = ("_format", "_stream", "lowest_rank", "processors")

    def __init__(self) -> None:
        self.processors: tuple[Processor, ...] = ()
        self.direct("warning", "auto", None)

    def direct(self, level: LogLevel, log_format: LogFormat, stream: TextIO | None) -> None:
        self.lowest_rank = RANK_BY_LEVEL[level]
        self._format = log_format
        self._stream = stream

    @property
    def stream(self) -> TextIO:
        return self._stream or sys.stderr

    @property
    def is_console(self) -> bool:
        return self.stream.isatty() if self._format == "auto" else self._format == "console"

    def log(self, level: LogLevel, event: str, facts: Mapping[str, object]) -> None:
        # A value may do anything when it is looked at; the work that logs it must go on.
        try:
            from structlog import BoundLogger  # noqa: PLC0415 - see `_processors`

            processors = _processors(self.processors, is_console=self.is_console)
            getattr(BoundLogger(_Lines(), processors, _renamed(facts)), level)(event)
        except Exception:  # noqa: BLE001 - see above
            self.write(_failed_line(level))

    def write(self, line: str) -> None:
        # A closed or full stderr is no reason to stop either. One write, and no lock: a process forked while
        # another thread holds it would wait forever.
        stream = self.stream
        with suppress(OSError, ValueError, AttributeError):
            encoding = stream.encoding or "utf-8"
            stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
            stream.flush()


# The one module-level state of mqworker: a process has one log, and loggers must not care who configured it.
_active = _Output()


# structlog takes 40 ms to import, a third of it asyncio: only a process that writes a line pays for it.
@lru_cache(maxsize=8)
def _processors(added: tuple[Processor, ...], *, is_console: bool) -> list[Processor]:
    return [*_gathering(added), *_rendering(is_console=is_console)]


@lru_cache(maxsize=8)
def _formatter(added: tuple[Processor, ...], *, is_console: bool) -> logging.Formatter:
    from structlog.stdlib import ProcessorFormatter, add_logger_name  # noqa: PLC0415 - see above

    return ProcessorFormatter(
        foreign_pre_chain=[add_logger_name, _add_extra, *_gathering(added)],
        processors=[ProcessorFormatter.remove_processors_meta, *_rendering(is_console=is_console)],
    )


def _gathering(added: tuple[Processor, ...]) -> list[Processor]:
    """What adds facts: what the application bound, and what this process adds."""
    from structlog.contextvars import merge_contextvars  # noqa: PLC0415 - see above

    return [merge_contextvars, *added]


def _rendering(*, is_console: bool) -> list[Processor]:
    """What makes a line of the facts, after everything was added."""
    from structlog.processors import TimeStamper, add_log_level, format_exc_info  # noqa: PLC0415 - see above

    stamp = TimeStamper(fmt="iso", utc=True)
    return [add_log_level, stamp, format_exc_info, _bounded, _console_line if is_console else _json_line]


class _Lines:
    """What structlog calls with the line, by the name of its level."""

    def debug(self, line: str) -> None:
        _active.write(line)

    info = warning = error = debug


def _renamed(facts: Mapping[str, object]) -> dict[str, object]:
    return {f"{name}_" if name in OWN_NAMES else name: value for name, value in facts.items()}


def _failed_line(level: str) -> str:
    return json.dumps({"event": "log_line_failed", "level": level})


# Any: structlog's own types of a processor, here and below.
def _add_extra(logger: Any, method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    from structlog.stdlib import ExtraAdder  # noqa: PLC0415 - see above

    extra = ExtraAdder()(logger, method, {"_record": facts["_record"]})
    del extra["_record"]
    return {**facts, **_renamed(extra)}


def _bounded(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401
    """Every value plain, bounded and masked; time, level and event first, a traceback last."""
    own = dict(facts)
    record: dict[str, Any] = {name: _text(own.pop(name)) for name in ("timestamp", "level", "event")}
    trace = own.pop("exception", None)
    record |= {_text(name): MASK if is_secret_name(name) else _value(value) for name, value in own.items()}
    return record if trace is None else record | {"exception": _last(masked_traceback(_shown(trace)))}


def _value(value: object) -> object:
    plain = _plain(value, depth=0)
    if isinstance(plain, dict | list):
        text = json.dumps(plain)
        return _first(text) if len(text) > LONGEST_VALUE else plain
    return plain


def _plain(value: object, depth: int) -> object:
    """The value as JSON can hold it, masked; whatever is unknown, too deep or too big becomes its repr."""
    match value:
        case None | bool():
            return value
        case int() if value.bit_length() <= LARGEST_INT_BITS:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case dict() if depth < DEEPEST_VALUE and len(value) <= MOST_ITEMS:
            return {_text(key): _member(key, item, depth) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() if depth < DEEPEST_VALUE and len(value) <= MOST_ITEMS:
            return [_plain(item, depth + 1) for item in value]
        case _:
            return _text(value)


def _member(key: object, item: object, depth: int) -> object:
    return MASK if is_secret_name(_shown(key)) else _plain(item, depth + 1)


def _text(value: object) -> str:
    # Masked before it is cut: half a URL no longer looks like one.
    return _first(masked_text(_shown(value)))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    with suppress(Exception):
        return repr(value)
    return f"<unprintable {type(value).__name__}>"


def _first(text: str) -> str:
    rest = len(text) - LONGEST_VALUE
    return text if rest <= 0 else f"{text[:LONGEST_VALUE]}... ({rest} more characters)"


def _last(text: str) -> str:
    """The end of a traceback names the error, so its beginning is cut."""
    rest = len(text) - LONGEST_VALUE
    return text if rest <= 0 else f"({rest} characters before) ...{text[-LONGEST_VALUE:]}"


def _json_line(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> str:  # noqa: ANN401
    return json.dumps(facts)


def _console_line(_logger: Any, _method: str, record: MutableMapping[str, Any]) -> str:  # noqa: ANN401
    facts = dict(record)
    trace = facts.pop("exception", "")
    head = f"{facts.pop('timestamp')} {facts.pop('level'):<7} {_word(facts.pop('event'))}"
    words = [head, *(f"{_word(name)}={_word(value)}" for name, value in facts.items())]
    return "\n".join([" ".join(words), *(f"    | {_escaped(line)}" for line in trace.splitlines())])


def _word(value: object) -> str:
    if isinstance(value, str) and value and not set(value) & set(' "='):
        return _escaped(value)
    return _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    """Escape what a terminal would act on: control characters, line ends, bidi overrides, surrogates."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
