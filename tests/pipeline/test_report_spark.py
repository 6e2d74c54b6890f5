"""The report equals the ledger of what was written, and DuckDB finds the same figures in the same lake."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

from mqworker.cli.main import mqworker
from mqworker_services.pipeline.engine import Engine, LocalEngine, SparkEngine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.lake_reading import BrokenFile
from mqworker_services.pipeline.report.answers import make_report
from mqworker_services.pipeline.report.figures import NO_NAME
from mqworker_services.pipeline.report.files import look_at_files
from mqworker_services.pipeline.report.question import By, Detail, Question, Report, Window
from tests.pipeline.lake_content import paths_of
from tests.pipeline.synthetic_lake import DAY_MS, FIRST_MS, KINDS, Ledger, write_lake, write_rows

MESSAGES = 20_000
ALL = Window(None, FIRST_MS + 30 * DAY_MS)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Ledger]:
    lake = Lake.at(str(tmp_path_factory.mktemp("history") / "lake"))
    return lake, write_lake(lake, MESSAGES, files_per_day=1)


@pytest.fixture(params=["without Spark", "Spark"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return (
        LocalEngine() if request.param == "without Spark" else SparkEngine(request.getfixturevalue("spark"))
    )


def report_on(engine: Engine, question: Question) -> Report:
    return make_report(engine, question, look_at_files(question.lake, question.window))


def test_counts_equal_the_ledger(engine: Engine, history: tuple[Lake, Ledger]) -> None:
    lake, ledger = history

    report = report_on(engine, Question(lake, ALL, detail=Detail.PAGE))

    assert report.whole.counts.events == ledger.rows
    assert {group.name for group in report.groups} == {kind.name for kind in KINDS}
    for group in report.groups:
        counts = group.counts
        assert counts.enqueued == ledger.of(group.name, "enqueued")
        assert counts.succeeded == ledger.of(group.name, "succeeded")
        assert counts.retried == ledger.of(group.name, "retried")
        assert counts.dead == ledger.of(group.name, "buried")
        assert counts.crashes == ledger.of(group.name, "crashed")
        assert counts.failed == counts.retried + counts.dead
        assert counts.started == counts.succeeded + counts.failed + counts.crashes
    assert sum(step.counts.events for step in report.steps) == ledger.rows
    assert sum(step.times.run.total for step in report.steps) == report.whole.times.run.total
    assert (
        sum(reason.count for reason in report.reasons)
        == report.whole.counts.failed + report.whole.counts.crashes
    )
    assert all(reason.example for reason in report.reasons if reason.error != "crashed")


def test_duckdb_finds_the_same_figures(engine: Engine, history: tuple[Lake, Ledger]) -> None:
    lake, _ = history
    since_ms, until_ms = FIRST_MS + DAY_MS + 5_000_000, FIRST_MS + 5 * DAY_MS + 7_777

    report = report_on(engine, Question(lake, Window(since_ms, until_ms), By.QUEUE, slowest=7, sla_ms=900.0))

    by_queue = {group.name: group for group in report.groups}
    rows = duckdb_figures(lake, since_ms, until_ms)
    assert set(by_queue) == {row["queue"] for row in rows}
    for row in rows:
        group = by_queue[row["queue"]]
        names = ("enqueued", "succeeded", "retried", "dead", "crashes", "late", "events")
        assert {name: getattr(group.counts, name) for name in names} == {name: row[name] for name in names}
        assert math.isclose(group.counts.run_ms, row["run_ms"], rel_tol=1e-9)
        assert (group.times.wait.max_ms, group.times.run.max_ms) == (row["wait_max"], row["run_max"])
        for percent in (50, 95, 99):
            told, exact = group.times.run.percentile(percent), row[f"run_p{percent}"]
            assert math.isclose(told or 0, exact, rel_tol=0.01)
            told, exact = group.times.wait.percentile(percent), row[f"wait_p{percent}"]
            assert math.isclose(told or 0, exact, rel_tol=0.01)
    assert [run.run_ms for run in report.slow_runs] == duckdb_slowest(lake, since_ms, until_ms, 7)


def duckdb_figures(lake: Lake, since_ms: int, until_ms: int) -> list[dict[str, Any]]:
    """The definitions of the documentation, in the words of another engine, with exact percentiles."""
    run = "list_sort(list(run_ms) FILTER (run_ms IS NOT NULL))"
    wait = "list_sort(list(wait_ms) FILTER (run_ms IS NOT NULL AND attempt = 1))"
    ranked = ", ".join(
        f"{name}s[CAST(ceil(len({name}s) * {percent} / 100.0) AS INT)] AS {name}_p{percent}"
        for name in ("run", "wait")
        for percent in (50, 95, 99)
    )
    found = duckdb.execute(
        f"""SELECT * EXCLUDE (runs, waits), {ranked}, runs[-1] AS run_max, waits[-1] AS wait_max FROM (
              SELECT queue, count(*) AS events, sum(run_ms) AS run_ms, {run} AS runs, {wait} AS waits,
                     count(*) FILTER (event = 'enqueued') AS enqueued,
                     count(*) FILTER (event = 'succeeded') AS succeeded,
                     count(*) FILTER (event = 'retried') AS retried,
                     count(*) FILTER (event = 'buried') AS dead,
                     count(*) FILTER (event = 'crashed') AS crashes,
                     count(*) FILTER (event = 'succeeded' AND wait_ms + run_ms > 900) AS late
              FROM {source(lake)} WHERE epoch_ms(ts) >= {since_ms} AND epoch_ms(ts) < {until_ms}
              GROUP BY queue)"""  # noqa: S608 - our own lake
    )
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def duckdb_slowest(lake: Lake, since_ms: int, until_ms: int, most: int) -> list[float]:
    found = duckdb.execute(
        f"""SELECT run_ms FROM {source(lake)} WHERE epoch_ms(ts) >= {since_ms} AND epoch_ms(ts) < {until_ms}
            AND run_ms IS NOT NULL ORDER BY run_ms DESC LIMIT {most}"""  # noqa: S608 - our own lake
    )
    return [row[0] for row in found.fetchall()]


def source(lake: Lake) -> str:
    return f"read_parquet({[*map(str, paths_of(lake))]})"


@pytest.mark.parametrize("by", [By.WORKER, By.HOUR, By.DAY])
def test_any_grouping_adds_up_to_the_same(engine: Engine, history: tuple[Lake, Ledger], by: By) -> None:
    lake, ledger = history

    report = report_on(engine, Question(lake, ALL, by, slowest=0))

    assert sum(group.counts.events for group in report.groups) == ledger.rows
    assert sum(group.counts.succeeded for group in report.groups) == ledger.total("succeeded")
    assert len(report.groups) == {By.WORKER: 5, By.HOUR: len(report.groups), By.DAY: 7}[by]
    assert report.slow_runs == []
    assert (NO_NAME in {group.name for group in report.groups}) is (by is By.WORKER)


def test_only_the_tasks_and_queues_asked_for_are_counted(
    engine: Engine, history: tuple[Lake, Ledger]
) -> None:
    lake, ledger = history

    chosen = report_on(engine, Question(lake, ALL, tasks=["shop.send_mail"], queues=["mail"], slowest=0))
    nobody = report_on(engine, Question(lake, ALL, tasks=["' OR 1=1 --"], slowest=0))

    assert [group.name for group in chosen.groups] == ["shop.send_mail"]
    assert chosen.whole.counts.enqueued == ledger.of("shop.send_mail", "enqueued")
    assert nobody.groups == []


def test_rows_without_names_or_times_are_counted_too(engine: Engine, lake: Lake) -> None:
    rows = [
        {"event": "enqueued", "queue": "mail", "ts": FIRST_MS * 1000, "task_id": "a"},
        {"event": "succeeded", "ts": FIRST_MS * 1000 + 5, "task_id": "a", "attempt": 1},
        {"event": "buried", "ts": FIRST_MS * 1000 + 9, "task_id": "unreadable-7", "error": "undecodable"},
    ]
    write_rows(lake, rows)

    report = report_on(engine, Question(lake, ALL, detail=Detail.PAGE))

    assert [(group.name, group.counts.events) for group in report.groups] == [(NO_NAME, 3)]
    assert (report.whole.counts.succeeded, report.whole.counts.dead, report.whole.counts.failed) == (1, 1, 0)
    assert report.whole.times.run.percentile(50) is None


def test_a_file_that_is_damaged_inside_is_named(engine: Engine, lake: Lake) -> None:
    write_lake(lake, 5_000, days=1, files_per_day=1)
    damaged = min(paths_of(lake))
    content = bytearray(damaged.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    damaged.write_bytes(content)

    with pytest.raises(BrokenFile, match=r"the file .*part-0\.zstd\.parquet is not a readable"):
        report_on(engine, Question(lake, ALL))


def report_command(*arguments: str) -> Result:
    return CliRunner().invoke(mqworker, ["pipeline", "report", *arguments])


def test_the_command_writes_table_document_and_page(history: tuple[Lake, Ledger], tmp_path: Path) -> None:
    lake, ledger = history
    target = tmp_path / "report.html"

    shown = report_command("--lake", str(lake.root))
    both = report_command("--lake", str(lake.root), "--json", "--html", str(target), "--since", "2026-03-01")

    assert shown.exit_code == 0, shown.output
    assert "shop.build_report" in shown.output
    assert json.loads(both.stdout)["total"]["events"] == ledger.rows
    assert "shop.build_report" in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "told"),
    [
        ((), 1, "is empty; `mqworker pipeline archive --once` fills it"),
        (("--since", "soon"), 2, "--since is 'soon'; accepted is"),
        (("--html", "no/such/folder/page.html"), 2, "accepted is a file in a folder that exists"),
        (("--by", "moon"), 2, "'moon' is not one of"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence_before_spark_starts(
    tmp_path: Path, arguments: tuple[str, ...], exit_code: int, told: str
) -> None:
    result = report_command("--lake", str(tmp_path), *arguments)

    assert (result.exit_code, told in result.output) == (exit_code, True), result.output
