"""What is wrong with a lake is said in a sentence that names the file, before Spark is started."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqworker_services.pipeline.lake import EmptyLake, Lake
from mqworker_services.pipeline.lake_reading import BrokenFile
from mqworker_services.pipeline.report.files import UnreadableLake, look_at_files
from mqworker_services.pipeline.report.question import Window
from tests.pipeline.lake_content import paths_of
from tests.pipeline.synthetic_lake import DAY_MS, FIRST_MS, write_lake

ALL = Window(None, FIRST_MS + 30 * DAY_MS)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake.at(str(tmp_path / "lake"))
    write_lake(lake, 200, days=2, files_per_day=1)
    return lake


def a_file(lake: Lake) -> Path:
    return min(paths_of(lake))


def test_the_extent_is_what_the_files_hold(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path / "lake"))
    ledger = write_lake(lake, 500, days=3)

    extent = look_at_files(lake, ALL)

    assert extent.rows == ledger.rows
    assert FIRST_MS <= extent.first_ms <= extent.last_ms <= FIRST_MS + 4 * DAY_MS


def test_only_the_days_of_the_window_are_looked_at(lake: Lake) -> None:
    a_file(lake).write_bytes(b"broken, but of another day")

    extent = look_at_files(lake, Window(FIRST_MS + DAY_MS, FIRST_MS + 2 * DAY_MS))

    assert extent.first_ms >= FIRST_MS + DAY_MS


@pytest.mark.parametrize("folder", ["nowhere", "."])
def test_an_empty_lake_says_how_to_fill_it(tmp_path: Path, folder: str) -> None:
    with pytest.raises(EmptyLake, match="is empty; `mqworker pipeline archive --once` fills it"):
        look_at_files(Lake.at(str(tmp_path / folder)), ALL)


def test_a_lake_without_events_in_the_window_names_the_window(lake: Lake) -> None:
    with pytest.raises(EmptyLake, match="no events between 2026-02-01 and 2026-02-02"):
        look_at_files(lake, Window(FIRST_MS - 29 * DAY_MS, FIRST_MS - 27 * DAY_MS))


@pytest.mark.parametrize("broken", [b"", b"no Parquet at all", b"PAR1 cut short PAR1"])
def test_a_broken_file_is_named(lake: Lake, broken: bytes) -> None:
    a_file(lake).write_bytes(broken)

    with pytest.raises(BrokenFile, match=r"the file .*\.parquet is not a readable Parquet file .*restore it"):
        look_at_files(lake, ALL)


def test_a_missing_column_is_named(lake: Lake) -> None:
    rewrite(lake, pq.read_table(a_file(lake), partitioning=None).drop_columns(["ts", "queue"]))

    with pytest.raises(UnreadableLake, match="lacks the columns ts, queue"):
        look_at_files(lake, ALL)


def test_a_column_of_another_type_is_named(lake: Lake) -> None:
    rows = pq.read_table(a_file(lake), partitioning=None)
    position = rows.schema.get_field_index("run_ms")
    rewrite(lake, rows.set_column(position, "run_ms", rows["run_ms"].cast(pa.string())))

    with pytest.raises(UnreadableLake, match="has run_ms as string; accepted is double"):
        look_at_files(lake, ALL)


def test_a_lake_of_a_newer_version_asks_for_an_update(lake: Lake) -> None:
    rows = pq.read_table(a_file(lake), partitioning=None)
    newer = pa.array([9] * rows.num_rows, pa.int32())
    rewrite(lake, rows.set_column(rows.schema.get_field_index("schema_v"), "schema_v", newer))

    with pytest.raises(UnreadableLake, match=r"by a newer mqworker \(schema_v 9, known here up to 1\)"):
        look_at_files(lake, ALL)


def rewrite(lake: Lake, rows: pa.Table) -> None:
    pq.write_table(rows, a_file(lake))
