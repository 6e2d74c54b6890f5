"""Decisions of the pipeline that need neither Spark nor a server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.events import StreamTail
from mqworker_services.pipeline import launcher
from mqworker_services.pipeline.archive_batch import (
    Receipt,
    SliceReceipt,
    check_files,
    check_receipts,
    portions_of,
)
from mqworker_services.pipeline.compaction import FEWEST_TODAY, planned_merges
from mqworker_services.pipeline.days import first_day_kept
from mqworker_services.pipeline.enqueueing import file_format
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.offsets import (
    EventsLost,
    ForeignHistory,
    Mark,
    Slice,
    as_document,
    check_history,
    from_document,
    resumed,
    sliced,
    taken,
)
from mqworker_services.pipeline.options import read_options, write_options
from mqworker_services.pipeline.parquet_files import RowsNotArrived, by_day
from mqworker_services.pipeline.session import master_with_retries, parse_conf, settings_for
from mqworker_services.pipeline.table import LakeFile, WrittenFile
from mqworker_services.pipeline.trouble import sentence
from mqworker_services.pipeline.verify import missing


def test_a_batch_takes_no_more_events_than_allowed() -> None:
    assert taken([("1-0", 3), ("2-0", 3), ("3-0", 3)], 7) == [("1-0", 3), ("2-0", 3)]


def test_a_batch_takes_one_block_even_if_that_is_too_large() -> None:
    assert taken([("1-0", 30), ("2-0", 3)], 7) == [("1-0", 30)]


def test_slices_follow_each_other_without_a_gap() -> None:
    pieces = list(sliced("q", "0-0", [("1-0", 4), ("2-0", 4), ("3-0", 4)], 8))

    assert pieces == [Slice("q", "0-0", "2-0", 2, 8), Slice("q", "2-0", "3-0", 1, 4)]


def test_no_blocks_make_no_slice() -> None:
    assert list(sliced("q", "5-0", [], 8)) == []


def test_a_stream_that_goes_on_where_reading_stopped_is_accepted() -> None:
    check_history("q", Mark("5-0", 5), StreamTail("9-0", 9, 4))


def test_blocks_that_were_dropped_unread_are_noticed() -> None:
    with pytest.raises(EventsLost, match="queue q: 2 blocks"):
        check_history("q", Mark("5-0", 5), StreamTail("9-0", 9, 2))


@pytest.mark.parametrize("tail", [StreamTail("9-0", 3, 3), StreamTail("4-0", 9, 9), StreamTail("0-0", 0, 0)])
def test_another_history_is_noticed(tail: StreamTail) -> None:
    with pytest.raises(ForeignHistory, match="another server"):
        check_history("q", Mark("5-0", 5), tail)


def test_ids_are_compared_as_numbers() -> None:
    check_history("q", Mark("999-0", 5), StreamTail("1000-0", 6, 6))


def test_rows_are_parted_by_day() -> None:
    at_us = [1_790_035_199_999_000, 1_790_035_200_000_000, 1_790_035_199_000_000]
    batch = pa.RecordBatch.from_pydict({"ts": pa.array(at_us, pa.timestamp("us", tz="UTC"))})

    assert {day: rows.num_rows for day, rows in by_day(batch)} == {"2026-09-21": 2, "2026-09-22": 1}


PORTIONS = [(Slice("q", "0-0", "2-0", 2, 8),), (Slice("q", "2-0", "3-0", 1, 4),)]


def receipt(number: int, last: str, blocks: int, events: int, rows: int) -> Receipt:
    file = WrittenFile(f"{number}.parquet", "2026-09-21", rows, 1, "{}")
    return Receipt(number, (SliceReceipt(last, blocks, events),), (file,))


FIRST, SECOND = receipt(0, "2-0", 2, 8, 8), receipt(1, "3-0", 1, 4, 4)


def test_receipts_for_all_of_the_plan_are_accepted_in_any_order() -> None:
    check_receipts(PORTIONS, [SECOND, FIRST])


@pytest.mark.parametrize("receipts", [[], [FIRST], [FIRST, FIRST], [FIRST, SECOND, SECOND]])
def test_receipts_that_are_not_one_for_each_portion_are_refused(receipts: list[Receipt]) -> None:
    with pytest.raises(RowsNotArrived, match="for 2 portions; nothing was committed"):
        check_receipts(PORTIONS, receipts)


@pytest.mark.parametrize("other", [receipt(1, "2-0", 0, 0, 0), receipt(1, "3-1", 1, 4, 4)])
def test_blocks_other_than_those_of_the_plan_are_refused(other: Receipt) -> None:
    with pytest.raises(EventsLost, match="queue q: an executor found"):
        check_receipts(PORTIONS, [FIRST, other])


def test_fewer_rows_than_events_are_refused() -> None:
    with pytest.raises(RowsNotArrived, match="wrote 3 of 4 events"):
        check_receipts(PORTIONS, [FIRST, receipt(1, "3-0", 1, 4, 3)])


def test_a_file_that_the_driver_does_not_see_as_it_was_written_is_refused(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "a.parquet").write_bytes(b"12345")
    check_files(lake, [WrittenFile("a.parquet", "2026-09-21", 2, 5, "{}")])

    for name, size in (("a.parquet", 4), ("b.parquet", 5)):
        with pytest.raises(RowsNotArrived, match=r"must share the folder of the lake.*nothing was committed"):
            check_files(lake, [WrittenFile(name, "2026-09-21", 2, size, "{}")])


def test_small_slices_of_many_queues_share_a_file_and_large_ones_have_their_own() -> None:
    quiet = [Slice(f"q{number}", "0-0", "1-0", 1, 3) for number in range(100)]
    busy = [Slice("busy", "0-0", "5-0", 5, 500), Slice("busy", "5-0", "9-0", 5, 400)]

    assert portions_of(quiet, 500) == [tuple(quiet)]
    assert portions_of([*busy, *quiet], 500) == [(busy[0],), (busy[1], *quiet[:33]), tuple(quiet[33:])]
    assert portions_of([Slice("q", "0-0", "1-0", 1, 900)], 500) == [(Slice("q", "0-0", "1-0", 1, 900),)]
    assert portions_of([], 500) == []


def test_reading_goes_on_after_a_loss_that_was_accepted() -> None:
    dropped = resumed(Mark("5-0", 5), StreamTail("9-0", 20, 4), ahead=4)
    deleted = resumed(Mark("5-0", 5), StreamTail("0-0", 0, 0), ahead=0)
    anew = resumed(Mark("5-0", 5), StreamTail("9-0", 3, 3), ahead=3)

    assert dropped == Mark("5-0", 16, 11)
    assert deleted == Mark("0-0", 0, -5)
    assert anew == Mark("5-0", 0, -5)
    assert dropped.read == deleted.read == anew.read == 5
    assert from_document(as_document({"q": dropped})) == {"q": dropped}


def test_a_place_of_a_lake_is_a_folder_or_a_bucket_or_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Lake.at("lake").root == str(tmp_path / "lake")
    assert Lake.at("file:///var/my%20lake").root == Lake.at("file:/var/my lake").root == "/var/my lake"
    assert (
        Lake.at("s3a://bucket/my/lake/").root == Lake.at("s3://bucket/my/lake").root == "s3://bucket/my/lake"
    )
    for wrong in ("s3://bucket", "s3://user@bucket/lake", "s3:///lake", "file://host/lake"):
        with pytest.raises(InvalidArgument, match=r"--lake is .*; accepted is"):
            Lake.at(wrong)
    for scheme in ("hdfs", "gs", "abfss", "https"):
        with pytest.raises(InvalidArgument, match=rf"and {scheme} is not supported; accepted is a folder"):
            Lake.at(f"{scheme}://host/lake")
    with pytest.raises(InvalidArgument, match="--storage is 'secret'; accepted are endpoint, region"):
        Lake.at("s3://bucket/lake", {"secret": "x"})
    assert not list(tmp_path.iterdir())


def a_file(number: int, rows: int, date: str = "2026-01-01") -> LakeFile:
    return LakeFile(f"date={date}/{number}.parquet", date, rows, rows)


def test_small_files_of_a_day_are_merged_up_to_a_size() -> None:
    small, large = [a_file(number, 40) for number in range(5)], a_file(9, 60)

    merges = planned_merges([*small, large], "2026-01-02", rows_per_file=100)

    assert [(merge.date, merge.files) for merge in merges] == [
        ("2026-01-01", tuple(small[:2])),
        ("2026-01-01", tuple(small[2:4])),
    ]
    assert planned_merges([large, a_file(1, 3)], "2026-01-02", rows_per_file=100) == []


def test_of_the_current_day_only_many_files_are_merged() -> None:
    today = [a_file(number, 1) for number in range(FEWEST_TODAY)]

    assert planned_merges(today[1:], "2026-01-01") == []
    assert [merge.files for merge in planned_merges(today, "2026-01-01")] == [tuple(today)]


def test_keep_counts_today() -> None:
    assert first_day_kept("1d", 1_790_035_200_000) == "2026-09-22"
    assert first_day_kept("2w", 1_790_035_200_000) == "2026-09-09"
    for wrong in ("0d", "90", "soon", "-1d"):
        with pytest.raises(
            InvalidArgument, match=f"--keep is '{wrong}'; accepted is a number of days or weeks"
        ):
            first_day_kept(wrong, 0)


def test_missing_and_surplus_blocks_are_told_by_queue() -> None:
    start = {"full": Mark("0-0", 3), "short": Mark("0-0", 3)}
    end = {"full": Mark("9-0", 10), "short": Mark("9-0", 10)}

    assert missing({"full": 7, "short": 6, "unknown": 2}, start, end, {}) == {"short": 1, "unknown": -2}
    assert missing({"full": 3, "short": 6}, start, end, {"full": 4, "short": 1}) == {}


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_try_failed_tasks_again(master: str, expected: str) -> None:
    assert master_with_retries(master) == expected


def test_given_settings_win_and_a_cluster_is_not_bound_to_loopback() -> None:
    assert settings_for("local[2]", {"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"
    assert settings_for("spark://203.0.113.9:7077", {}).get("spark.driver.host") != "127.0.0.1"
    assert settings_for("spark://far:7077", {"spark.driver.host": "me"})["spark.driver.host"] == "me"
    assert settings_for("spark://127.0.0.1:7077", {})["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize("pair", ["spark.ui.port", "ui=1", "=", ""])
def test_a_conf_that_is_no_pair_is_refused(pair: str) -> None:
    with pytest.raises(InvalidArgument, match="--conf is"):
        parse_conf([pair])


def test_a_conf_may_hold_further_equals_signs() -> None:
    assert parse_conf(["spark.driver.extraJavaOptions=-Da=b"]) == {"spark.driver.extraJavaOptions": "-Da=b"}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tabel": "events"}, "unknown option tabel"),
        ({"table": "jobs"}, "option table is 'jobs'; accepted are events, queues, dead_letters, archive"),
        ({"max_events_per_batch": "0"}, "option max_events_per_batch is '0'"),
        ({"on_loss": "weep"}, "option on_loss is 'weep'; accepted are fail, skip"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        read_options(given)


def test_a_write_needs_a_task() -> None:
    with pytest.raises(InvalidArgument, match="option task is missing"):
        write_options({})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("a.csv", None, "csv"),
        ("a.JSONL", None, "json"),
        ("a.parquet", None, "parquet"),
        ("a.txt", "csv", "csv"),
    ],
)
def test_the_format_is_told_by_the_name_or_by_the_user(name: str, given: str | None, expected: str) -> None:
    assert file_format(Path(name), given) == expected


def test_a_file_of_unknown_format_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"FILE is a\.txt"):
        file_format(Path("a.txt"), None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "Traceback\nmqworker_services.pipeline.offsets.EventsLost: queue q: 2 blocks\nat java",
            "queue q: 2 blocks",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 1\nmore",
            "Spark: Path does not exist: x. SQLSTATE: 1",
        ),
        ("something\nelse", "Spark: something"),
        (
            "Traceback\n  File x\nModuleNotFoundError: No module named 'mqworker'\n\tat org.apache",
            "an executor failed: ModuleNotFoundError: No module named 'mqworker'",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/bin/python": error=2, No such file\nat',
            'an executor failed: Cannot run program "/opt/bin/python": error=2, No such file',
        ),
    ],
)
def test_errors_of_spark_become_a_sentence(text: str, expected: str) -> None:
    assert sentence(text) == expected


@pytest.mark.parametrize(
    ("text", "version"),
    [('openjdk version "17.0.15" 2025', 17), ('java version "1.8.0_401"', 8), ("command not found", 0)],
)
def test_the_version_of_java_is_read(text: str, version: int) -> None:
    assert launcher.java_version(text) == version


def test_without_any_java_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_packaged_java", lambda: None)

    with pytest.raises(ConfigurationError, match=r"Java 17 or newer.*mqworker\[java\]"):
        launcher.java_home({"PATH": "/nowhere"})


def test_an_old_java_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setattr(launcher, "_packaged_java", lambda: None)

    with pytest.raises(ConfigurationError, match="Java 17 or newer"):
        launcher.java_home({"JAVA_HOME": str(tmp_path)})


def test_the_packaged_java_is_called_without_the_module_it_lacks(tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415

    echo = tmp_path / "java"
    echo.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    echo.chmod(0o755)

    shim = launcher.write_shim(echo) / "bin" / "java"
    said = subprocess.run(
        [shim, "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", ""],
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.split("\n")[:-1] == ["<-cp>", "<a b>", "<Main>", "<>"]
