"""The commands as a user types them, with the Spark session of the tests: what they say and how they exit."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from mqworker import App
from mqworker.cli.main import mqworker
from mqworker.model.settlement import Bury, Failure
from mqworker.settings import Settings
from tests.pipeline.event_factory import append_events
from tests.support.real_server import RealServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[..., Result]


@pytest.fixture
def run(spark: SparkSession, settings: Settings, tmp_path: Path) -> Run:
    del spark  # getOrCreate finds it

    def run_command(*arguments: str) -> Result:
        shared = ["--redis-url", settings.redis_url or "", "--lake", str(tmp_path / "lake")]
        return CliRunner().invoke(mqworker, ["pipeline", arguments[0], *shared, *arguments[1:]])

    return run_command


def test_archive_verify_and_compact_say_what_they_did(run: Run, server: RealServer) -> None:
    with server.client() as client:
        append_events(client, "mail", 1_000)

    archived, verified, compacted = run("archive", "--once", "--trim"), run("verify"), run("compact")

    assert (archived.exit_code, verified.exit_code, compacted.exit_code) == (0, 0, 0)
    assert archived.stderr.startswith("batch 0: 2,000 events; 2,000 in all, ")
    assert archived.stdout.startswith("2,000 events archived in ")
    assert verified.stdout == "2,000 events in 4 blocks: none missing, none twice\n"
    assert compacted.stdout == "nothing to compact\n"


def test_release_gives_streams_their_usual_cap_again(
    run: Run, server: RealServer, settings: Settings
) -> None:
    app = App("shop", settings=replace(settings, events_kept=1))
    for queue in ("mail", "web"):
        app.work_queue(queue).push("first")
    assert run("archive", "--once", "--hold", "10000").exit_code == 0
    command = ["pipeline", "release", "--redis-url", settings.redis_url or ""]

    released = CliRunner().invoke(mqworker, [*command, "mail"])
    unknown = CliRunner().invoke(mqworker, [*command, "mial"])

    for queue in ("mail", "web"):
        for number in range(500):
            app.work_queue(queue).push(f"letter {number}")
    app.close()
    assert released.stdout == "1 queue no longer held for an archiver\n"
    assert (unknown.exit_code, unknown.stderr) == (1, "mqworker: there is no queue 'mial' [unknown-queue]\n")
    with server.client() as client:
        kept = {queue: client.xlen(f"mqw:{{{queue}}}:events") for queue in ("mail", "web")}
    assert kept["web"] == 501
    assert kept["mail"] < 200  # about one, in whole nodes of the stream
    assert CliRunner().invoke(mqworker, command).stdout == "2 queues no longer held for an archiver\n"


def test_an_empty_lake_is_told_in_a_sentence(run: Run) -> None:
    result = run("verify")

    assert result.exit_code == 1
    assert result.stderr.startswith("mqworker: the lake ")
    assert "is empty; `mqworker pipeline archive --once` fills it" in result.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("orders.csv", "order,amount\na,1\nb,2\nc,3\n"),
        (
            "orders.jsonl",
            '{"order": "a", "amount": 1}\n{"order": "b", "amount": 2}\n{"order": "c", "amount": 3}\n',
        ),
    ],
)
def test_enqueue_is_repeatable(run: Run, settings: Settings, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    command = ("enqueue", str(tmp_path / name), "--task", "ship", "--queue", "orders")
    first, second, third = run(*command), run(*command), run(*command, "--run", "another")

    assert [first.exit_code, second.exit_code, third.exit_code] == [0, 0, 0]
    assert first.stdout == third.stdout == f"3 rows of {name} enqueued as ship in queue orders\n"
    again = "3 of them before, by the same run; --run NAME enqueues them anew\n"
    assert second.stdout == first.stdout + again
    app = App("shop", settings=settings)
    assert app.work_queue("orders").counts().ready == 6
    app.close()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("missing.csv", "--task", "ship"), "FILE is missing.csv, which does not exist"),
        (("orders.txt", "--task", "ship"), "accepted is --format csv, json or parquet"),
        (("orders.csv", "--task", "ship", "--id", "number"), "--id is 'number'; accepted are the columns"),
        (("orders.csv", "--task", "not a name"), "task"),
    ],
)
def test_a_wrong_enqueue_is_told_in_a_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "orders.csv").write_text("order\na\n")
    monkeypatch.chdir(tmp_path)

    result = run("enqueue", *arguments)

    assert result.exit_code in {1, 2}
    assert problem in result.stderr
    assert "Traceback" not in result.stderr


def test_replay_puts_back_what_sql_chooses(run: Run, settings: Settings) -> None:
    app = App("shop", settings=settings)
    work = app.work_queue("mail")
    work.push("a", "b", "c")
    first, second, third = work.claim(3)
    gone, timed_out = Failure("KeyError", "gone"), Failure("TimeoutError", "slow")
    work.settle(
        Bury(first, "failed", gone), Bury(second, "failed", timed_out), Bury(third, "failed", timed_out)
    )

    shown = run("replay", "--where", "error = 'TimeoutError'", "--dry-run")
    done = run("replay", "--where", "error = 'TimeoutError'")
    wrong = run("replay", "--where", "errror = 'TimeoutError'")

    assert "2 dead letters would go back in line" in shown.stdout
    assert done.stdout == "2 dead letters of queue mail back in line\n"
    assert (work.counts().dead, work.counts().ready) == (1, 2)
    assert wrong.exit_code == 2
    assert "accepted is an SQL condition over task_id, task, queue" in wrong.stderr
    app.close()


def test_without_pyspark_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "pyspark" else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)

    result = CliRunner().invoke(mqworker, ["pipeline", "replay", "--where", "true"])

    assert result.exit_code == 78
    expected = "the pipeline needs pyspark, which is not installed: pip install 'mqworker[spark]'"
    assert result.stderr == f"mqworker: {expected} [configuration-error]\n"


def test_a_bad_row_of_a_file_is_told_with_its_place_and_nothing_is_enqueued(
    run: Run, settings: Settings, tmp_path: Path
) -> None:
    rows = "".join(f"{number},{number}\n" for number in range(5_000))
    (tmp_path / "orders.csv").write_text(f"order,amount\n{rows}last,1,2,3\n")
    (tmp_path / "orders.jsonl").write_text('{"order": 1}\n{"order": \n')

    results = [
        run("enqueue", str(tmp_path / name), "--task", "ship") for name in ("orders.csv", "orders.jsonl")
    ]

    app = App("shop", settings=settings)
    ready = app.work_queue("default").counts().ready
    app.close()
    assert ready == 0
    for result, place in zip(results, ("line 5,002: last,1,2,3", 'line 2: {"order":'), strict=True):
        assert (result.exit_code, "Traceback" in result.output) == (2, False), result.output
        assert f"cannot be read at {place}" in result.stderr


def test_a_command_that_reads_a_server_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    for command in (("archive", "--once"), ("replay", "--where", "true")):
        result = CliRunner().invoke(mqworker, ["pipeline", *command])
        assert (result.exit_code, "no server runs for this directory" in result.stderr) == (69, True)

    assert list(tmp_path.iterdir()) == []


def test_a_queue_that_never_was_is_told_by_the_source(spark: SparkSession, settings: Settings) -> None:
    from mqworker.errors import UnknownQueue  # noqa: PLC0415
    from mqworker_services.pipeline.trouble import in_a_sentence  # noqa: PLC0415

    app = App("shop", settings=settings)
    app.work_queue("mail").push("a")
    app.close()
    rows = (
        spark.read.format("mqworker").option("redis_url", settings.redis_url or "").option("queues", "nosuch")
    )

    with pytest.raises(UnknownQueue, match="there is no queue 'nosuch'; known are mail"), in_a_sentence():
        rows.load().count()
