"""What a type checker says about calls of tasks: right ones pass `mypy --strict`, wrong ones do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
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


@pytest.fixture(scope="module")
def other_report() -> dict[str, set[int]]:
    """What pyright says: the lines it rejects, by file."""
    program = Path(sys.executable).with_name("basedpyright")
    if not program.exists():
        pytest.skip("basedpyright is a tool of development")
    answer = subprocess.run(
        [program, "--project", str(FOLDER / "pyrightconfig.json"), "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER,
    )
    found = json.loads(answer.stdout)["generalDiagnostics"]
    rejected: dict[str, set[int]] = {"right_calls.py": set(), "wrong_calls.py": set()}
    for each in found:
        rejected[Path(each["file"]).name].add(each["range"]["start"]["line"] + 1)
    return rejected


def test_pyright_accepts_and_rejects_the_same(other_report: dict[str, set[int]]) -> None:
    lines = (FOLDER / "wrong_calls.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "# wrong" in line}

    assert other_report == {"right_calls.py": set(), "wrong_calls.py": wrong}
