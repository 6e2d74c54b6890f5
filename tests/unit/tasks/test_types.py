"""What a type checker says about calls of tasks: right ones pass `mypy --strict`, wrong ones do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

mypy = pytest.importorskip("mypy.api", reason="mypy is a tool of development")

FOLDER = Path(__file__).parents[2] / "typing"
ROOT = FOLDER.parents[1]


@pytest.fixture(scope="module")
def report() -> str:
    """One run over both files: most of the time goes into reading the package."""
    text, problems, _ = mypy.run(
        [
            *("--strict", "--no-error-summary", "--no-pretty", "--show-column-numbers"),
            *("--config-file", str(ROOT / "pyproject.toml")),
            *(str(FOLDER / "right_calls.py"), str(FOLDER / "wrong_calls.py")),
        ]
    )
    assert problems == ""
    return str(text)


def test_right_calls_are_accepted(report: str) -> None:
    assert [line for line in report.splitlines() if "right_calls.py" in line] == []


def test_each_wrong_call_is_rejected_and_nothing_else(report: str) -> None:
    lines = (FOLDER / "wrong_calls.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "# wrong" in line}

    rejected = {int(found) for found in re.findall(r"wrong_calls\.py:(\d+):\d+: error", report)}

    assert rejected == wrong
