"""Log: what a line holds, and what can never be in one."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.contextvars import bound_contextvars

from mqworker.log import (
    LogFormat,
    add_processors,
    capture_standard_logging,
    configure_logging,
    get_logger,
    keep_processors,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no repr today")


def refuse() -> None:
    raise ConnectionError("redis://u:S3CR3T@host refused")


@pytest.fixture(autouse=True, scope="module")
def log_as_before() -> Iterator[None]:
    yield
    configure_logging("warning", "auto")


def lines_of(log_format: LogFormat, event: str, /, **facts: object) -> list[str]:
    stream = io.StringIO()
    configure_logging("debug", log_format, stream)
    get_logger().info(event, **facts)
    return stream.getvalue().split("\n")[:-1]


@pytest.fixture
def standard_log() -> Iterator[io.StringIO]:
    """Where the lines of the standard `logging` go."""
    root = logging.getLogger()
    handlers, level, stream = root.handlers[:], root.level, io.StringIO()
    configure_logging("info", "json", stream)
    capture_standard_logging(worker="worker:0")
    yield stream
    root.handlers[:], root.level = handlers, level


def record_of(event: str, /, **facts: object) -> dict[str, object]:
    (line,) = lines_of("json", event, **facts)
    record: dict[str, object] = json.loads(line)
    return record


def test_a_json_line_holds_time_level_event_and_facts() -> None:
    record = record_of("lease_expired", late_ms=20, queue="mail")

    assert record.pop("timestamp")
    assert record == {"level": "info", "event": "lease_expired", "late_ms": 20, "queue": "mail"}


def test_a_console_line_quotes_only_what_needs_it() -> None:
    (line,) = lines_of("console", "lease_expired", queue="mail", reason="too late")

    assert line.endswith('info    lease_expired queue=mail reason="too late"')


def test_bound_facts_are_in_every_line() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    log = get_logger(actor="broker").bind(pid=7)

    log.info("actor_started")
    log.info("actor_stopped")

    assert [(r["actor"], r["pid"]) for r in map(json.loads, stream.getvalue().splitlines())] == [
        ("broker", 7)
    ] * 2


def test_lines_below_the_level_are_not_written() -> None:
    stream = io.StringIO()
    configure_logging("warning", "json", stream)
    log = get_logger()

    log.debug("a")
    log.info("b")
    log.warning("c")
    log.error("d")

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["c", "d"]


def test_a_logger_made_before_the_configuration_follows_it() -> None:
    log = get_logger()
    stream = io.StringIO()

    configure_logging("info", "json", stream)
    log.info("actor_started")

    assert "actor_started" in stream.getvalue()


@pytest.mark.parametrize(("stream", "starts_with_brace"), [(Terminal(), False), (io.StringIO(), True)])
def test_auto_is_console_on_a_terminal_and_json_elsewhere(
    stream: io.StringIO, *, starts_with_brace: bool
) -> None:
    configure_logging("info", "auto", stream)

    get_logger().info("actor_started")

    assert stream.getvalue().startswith("{") is starts_with_brace


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize(
    "facts",
    [
        {"password": "S3CR3T"},
        {"headers": {"Authorization": "Bearer S3CR3T"}},
        {"a": [{"b": {"api_key": "S3CR3T"}}]},
        {"a": {"b": {"c": {"d": {"token": "S3CR3T"}}}}},
        {"url": "redis://u:S3CR3T@host"},
        {"error": ValueError("password=S3CR3T")},
        {"text": "x" * 1_990 + " redis://u:S3CR3T@host"},
        {"redis://u:S3CR3T@host": 1},
    ],
)
def test_no_secret_reaches_a_line(log_format: LogFormat, facts: dict[str, object]) -> None:
    text = "\n".join(lines_of(log_format, "task_failed", **facts))

    assert "task_failed" in text
    assert "S3CR3T" not in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_secret_survives_in_a_traceback(log_format: LogFormat) -> None:
    stream = io.StringIO()
    configure_logging("info", log_format, stream)

    try:
        refuse()
    except ConnectionError:
        get_logger().exception("store_lost")

    assert "ConnectionError: redis://u:***@host refused" in stream.getvalue()
    assert "S3CR3T" not in stream.getvalue()


def test_a_long_value_is_capped_with_a_note() -> None:
    record = record_of("x_done", body="a" * 2_500, items={"k": ["b" * 1_500, "c" * 1_500]})

    assert record["body"] == "a" * 2_000 + "... (500 more characters)"
    assert "more characters)" in str(record["items"])


def test_a_long_traceback_keeps_its_end() -> None:
    record = record_of("x_failed", exc_info=ValueError("a" * 5_000 + " the reason"))

    assert str(record["exception"]).endswith("the reason")
    assert len(str(record["exception"])) < 2_100


def test_a_traceback_cannot_forge_a_console_line() -> None:
    first, *rest = lines_of(
        "console", "x_failed", exc_info=ValueError("a\n2030-01-01 info all_well\r\x1b[2J")
    )

    assert "x_failed" in first
    assert rest
    assert all(line.startswith("    | ") and line.isprintable() for line in rest)


@pytest.mark.parametrize(
    "value",
    [
        Unprintable(),
        {1: Unprintable()},
        object(),
        pytest.param(10**5_000, id="huge"),
        float("nan"),
        b"\xff",
        {"a", 1},
        {(1, 2): 3},
    ],
)
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_value_that_cannot_be_written_never_raises(log_format: LogFormat, value: object) -> None:
    (line,) = lines_of(log_format, "x_done", value=value)

    assert "x_done" in line


def test_a_value_that_holds_itself_is_written() -> None:
    loop: list[object] = []
    loop.append(loop)

    assert record_of("x_done", loop=loop)["loop"]


def test_facts_cannot_replace_the_fields_of_the_line() -> None:
    record = record_of("x_done", event="y", level="z", timestamp=1, exception="e")

    assert (record["event"], record["event_"], record["level"], record["level_"]) == (
        "x_done",
        "y",
        "info",
        "z",
    )
    assert (record["timestamp_"], record["exception_"]) == (1, "e")


@pytest.mark.parametrize("exc_info", ["text", (1, 2), (None, None, None), True, object()])
def test_a_senseless_exc_info_never_raises(exc_info: object) -> None:
    assert record_of("x_done", exc_info=exc_info)["level"] == "info"


def test_a_closed_stream_never_raises() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    stream.close()

    get_logger().info("x_done")


def test_a_stream_of_a_small_alphabet_gets_escapes() -> None:
    raw = io.BytesIO()
    configure_logging("info", "console", io.TextIOWrapper(raw, encoding="ascii"))

    get_logger().info("x_done", name="é")

    assert raw.getvalue().endswith(b"name=\\xe9\n")


@given(event=st.text(), name=st.text(min_size=1), value=st.text())
def test_no_text_can_forge_or_steer_a_console_line(event: str, name: str, value: str) -> None:
    lines = lines_of("console", event, **{name: value}, nested={name: [value]})

    assert len(lines) == 1
    assert lines[0].isprintable()


@given(
    event=st.text(),
    value=st.recursive(
        st.text() | st.floats() | st.integers(),
        lambda each: st.lists(each) | st.dictionaries(st.text(), each),
    ),
)
def test_every_json_line_is_one_line_of_ascii(event: str, value: object) -> None:
    (line,) = lines_of("json", event, value=value)

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["level"] == "info"


def test_importing_the_log_does_not_import_structlog() -> None:
    code = "import sys, mqworker.log; sys.exit('structlog' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == 0


# Any: structlog's own types of a processor.
def add_trace(_logger: Any, _method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    facts.setdefault("trace_id", "t1")
    return facts


def refuse_facts(_logger: Any, _method: str, _facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
    raise RuntimeError("a processor of somebody else")


def test_a_processor_that_a_process_adds_sees_the_lines_of_all_loggers(standard_log: io.StringIO) -> None:
    with keep_processors():
        add_processors(add_trace)
        get_logger(actor="a").info("x_done")
        logging.getLogger("shop").warning("said")

    get_logger().info("x_done")
    ours, theirs, after = map(json.loads, standard_log.getvalue().splitlines())
    assert (ours["trace_id"], theirs["trace_id"], theirs["worker"]) == ("t1", "t1", "worker:0")
    assert "trace_id" not in after


def test_what_the_application_binds_by_structlog_is_in_the_lines_of_all_loggers(
    standard_log: io.StringIO,
) -> None:
    with bound_contextvars(order=7, level="forged", api_key="S3CR3T"):
        get_logger().info("x_done")
        logging.getLogger("shop").info("said")

    lines = [json.loads(line) for line in standard_log.getvalue().splitlines()]
    assert [(line["order"], line["level"]) for line in lines] == [(7, "info")] * 2
    assert "S3CR3T" not in standard_log.getvalue()


def test_a_fact_wins_over_what_is_bound_by_structlog() -> None:
    with bound_contextvars(order=7):
        assert record_of("x_done", order=8)["order"] == 8


def test_a_processor_that_raises_costs_the_line_and_nothing_else(standard_log: io.StringIO) -> None:
    with keep_processors():
        add_processors(refuse_facts)
        get_logger().error("x_failed")
        logging.getLogger("shop").error("said")

    lines = [json.loads(line) for line in standard_log.getvalue().splitlines()]
    assert lines == [{"event": "log_line_failed", "level": "error"}] * 2


def test_what_standard_logging_is_given_cannot_replace_the_fields_of_the_line(
    standard_log: io.StringIO,
) -> None:
    facts = {"event": "y", "level": "z", "timestamp": 1, "exception": "e", "size": 3}
    logging.getLogger("shop").info("said %s", "it", extra=facts)

    line = json.loads(standard_log.getvalue())
    assert (line["event"], line["level"], line["logger"], line["size"]) == ("said it", "info", "shop", 3)
    assert (line["event_"], line["level_"], line["timestamp_"], line["exception_"]) == ("y", "z", 1, "e")


def test_a_traceback_of_standard_logging_is_masked_and_cut(standard_log: io.StringIO) -> None:
    try:
        refuse()
    except ConnectionError:
        logging.getLogger("shop").exception("lost")

    line = json.loads(standard_log.getvalue())
    assert line["exception"].endswith("ConnectionError: redis://u:***@host refused")
    assert "exc_info" not in line


def test_logging_leaves_the_configuration_of_structlog_alone() -> None:
    code = (
        "import structlog; before = structlog.get_config(); import io;"
        "from mqworker.log import *; configure_logging('info', 'json', io.StringIO());"
        "capture_standard_logging(); get_logger().info('x');"
        "import sys; sys.exit(structlog.is_configured() or structlog.get_config() != before)"
    )

    done = subprocess.run([sys.executable, "-c", code], check=False)

    assert done.returncode == 0
