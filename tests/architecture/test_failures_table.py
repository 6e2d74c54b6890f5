"""The table of failures: every row has all its columns, and names a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COLUMNS = ["what happens", "lost", "doubled", "delayed", "what `status` says", "shown by"]


def rows() -> list[list[str]]:
    lines = (ROOT / "docs" / "failures.md").read_text().splitlines()
    table = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    cells = [[cell.strip() for cell in row] for row in table]
    return [row for row in cells if row != COLUMNS]


def test_there_are_rows() -> None:
    assert len(rows()) > 20


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_names_a_test_that_exists(row: list[str]) -> None:
    assert len(row) == len(COLUMNS)
    named = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", row[-1])
    assert named is not None
    assert f"def {named[2]}(" in (ROOT / named[1]).read_text()
