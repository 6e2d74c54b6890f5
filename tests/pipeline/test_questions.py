"""Questions about a lake: SQL, one message's life, promises. DuckDB, Arrow, Spark and the ledger agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqworker.cli.main import mqworker
from mqworker.errors import InvalidArgument
from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_sql import query, query_on_spark
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.document import document
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.page import page
from mqworker_services.pipeline.report.question import By, Detail, Question, Window
from mqworker_services.pipeline.report.trends import parse_slo
from mqworker_services.pipeline.trace import NotInTheLake, trace
from tests.pipeline.synthetic_lake import DAY_MS, FIRST_MS, Ledger, write_lake, write_rows

ALL = Window(None, FIRST_MS + 30 * DAY_MS)
BERLIN = "Europe/Berlin"
MOST_TRIED = "SELECT task_id FROM events GROUP BY task_id ORDER BY count(*) DESC LIMIT 1"
COUNTS = "SELECT task, event, count(*) AS number FROM events GROUP BY task, event"


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Ledger]:
    lake = Lake.at(str(tmp_path_factory.mktemp("history") / "lake"))
    return lake, write_lake(lake, 5_000, files_per_day=1)


@pytest.fixture(params=["without Spark", "Spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if request.param == "Spark":
        return SparkEngine(request.getfixturevalue("spark"))
    return LocalEngine()


def test_sql_finds_what_the_ledger_says(history: tuple[Lake, Ledger], request: pytest.FixtureRequest) -> None:
    lake, ledger = history

    by_duckdb = query(lake, COUNTS, 1_000)
    by_spark = query_on_spark(request.getfixturevalue("spark"), lake, COUNTS, 1_000)

    assert by_duckdb.columns == by_spark.columns == ("task", "event", "number")
    assert sorted(by_duckdb.rows) == sorted(by_spark.rows)
    assert {(task, event): number for task, event, number in by_duckdb.rows} == dict(ledger.counts)


def test_sql_sees_nothing_but_the_table(history: tuple[Lake, Ledger], tmp_path: Path) -> None:
    lake, _ = history

    for sql in (
        "SELEC 1",
        "SELECT nosuch FROM events",
        "FROM read_csv('/etc/passwd')",
        f"COPY (SELECT 1) TO '{tmp_path / 'stolen.csv'}'",
        "SET enable_external_access = true",
        "ATTACH 'other.db'",
    ):
        with pytest.raises(InvalidArgument, match="accepted is a query over the table events: "):
            query(lake, sql, 10)
    assert not list(tmp_path.iterdir())
    limited = query(lake, "SELECT task_id FROM events", 10)
    assert (len(limited.rows), limited.has_more) == (10, True)


def test_a_message_is_traced_from_enqueue_to_its_end(engine: Engine, history: tuple[Lake, Ledger]) -> None:
    lake, _ = history
    ((wanted,),) = query(lake, MOST_TRIED, 1).rows

    found = trace(engine, lake, wanted)

    events = [row["event"] for row in found]
    assert (events[0], events[-1]) == ("enqueued", "succeeded")
    assert [row["attempt"] for row in found] == [None, *range(1, len(found))]
    assert len(found) > 2
    assert {row["task_id"] for row in found} == {wanted}
    with pytest.raises(NotInTheLake, match="no event of the message 'm-nosuch'"):
        trace(engine, lake, "m-nosuch")


def test_every_question_has_the_same_answer_with_and_without_spark(
    history: tuple[Lake, Ledger], request: pytest.FixtureRequest
) -> None:
    lake, _ = history
    window = Window(FIRST_MS + 2 * DAY_MS, FIRST_MS + 6 * DAY_MS)
    for by in (By.TASK, By.NODE):
        question = Question(
            lake,
            window,
            by,
            detail=Detail.PAGE,
            zone=BERLIN,
            slos=[parse_slo("charge_card: 99% < 500ms")],
            is_compared=True,
            is_forecast=True,
        )
        extent = look_at_files(lake, window)
        spark = SparkEngine(request.getfixturevalue("spark"))
        here, there = (make_report(each, question, extent) for each in (LocalEngine(), spark))
        assert _close(document(here)) == _close(document(there))
        assert here.before is not None
        assert here.forecast is not None
        assert "When messages waited" in page(here)


def _close(found: dict[str, object]) -> str:
    """Sums of floats depend on their order in the last digits."""
    return json.dumps(
        json.loads(json.dumps(found), parse_float=lambda text: f"{float(text):.6g}"), sort_keys=True
    )


def test_a_promise_is_counted_exactly(engine: Engine, history: tuple[Lake, Ledger]) -> None:
    lake, _ = history
    question = Question(lake, ALL, slos=[parse_slo("charge_card: 99% < 500ms")], slowest=0)

    (kept,) = make_report(engine, question, look_at_files(lake, ALL)).kept

    where = "FROM events WHERE task = 'shop.charge_card' AND event"
    ((good, late),) = query(
        lake,
        "SELECT count(*) FILTER (wait_ms + run_ms <= 500), count(*) FILTER (wait_ms + run_ms > 500) "
        f"{where} = 'succeeded'",
        1,
    ).rows
    ((dead,),) = query(lake, f"SELECT count(*) {where} = 'buried'", 1).rows
    assert (kept.good, kept.late, kept.dead) == (good, late, dead)


def test_days_are_those_of_the_zone(engine: Engine, lake: Lake) -> None:
    begin_ms = FIRST_MS + 27 * DAY_MS - 3_600_000  # 2026-03-29 00:00 in Berlin: the day of 23 hours
    rows = [
        {"event": "enqueued", "queue": "mail", "task": "t", "ts": (begin_ms + minute * 60_000) * 1000}
        for minute in (-1, 0, 23 * 60 - 1, 23 * 60)
    ]
    write_rows(lake, rows, date="2026-03-29")
    question = Question(lake, ALL, By.DAY, zone=BERLIN, slowest=0)

    report = make_report(engine, question, look_at_files(lake, ALL))

    assert {group.name: group.counts.enqueued for group in report.groups} == {
        "2026-03-28": 1,
        "2026-03-29": 2,
        "2026-03-30": 1,
    }


def run(*arguments: str) -> Result:
    return CliRunner().invoke(mqworker, ["pipeline", *arguments])


def test_the_commands_answer_and_warn(history: tuple[Lake, Ledger]) -> None:
    lake, ledger = history

    asked = run("sql", "SELECT count(*) AS number FROM events", "--lake", lake.root, "--json")
    traced = run("trace", "m-1", "--lake", lake.root)
    unknown = run(
        "report", "--lake", lake.root, "--task", "shop.sendmail", "-q", "nosuch", "--slo", "pay: 9% < 1s"
    )
    whole = run(
        *("report", "--lake", lake.root, "--since", "2026-03-05", "--until", "2026-03-08", "--by", "node"),
        *("--compare", "--forecast", "--tz", BERLIN, "--slo", "charge_card: 90% < 1s"),
    )

    assert json.loads(asked.stdout) == {"number": ledger.rows}
    assert "enqueued" in traced.stdout
    assert unknown.exit_code == 0
    assert unknown.stderr.splitlines() == [
        "warning: no event of task 'shop.sendmail' is in the window",
        "warning: no event of queue 'nosuch' is in the window",
        "warning: no event of task 'pay' is in the window",
    ]
    assert whole.exit_code == 0, whole.output
    for told in ("node-a", BERLIN, "budget burned", "before", "next 7 days, from 3 whole days"):
        assert told in whole.stdout
    assert run("report", "--lake", lake.root, "--compare").exit_code == 2
    assert run("sql", "SELEC 1", "--lake", lake.root).exit_code == 2
    missing = run("trace", "nosuch", "--lake", lake.root)
    assert (missing.exit_code, "[not-in-the-lake]" in missing.stderr) == (1, True)
