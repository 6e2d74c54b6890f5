"""Prose is spelt as dictionaries have it, in pages, comments, errors and help; and the check bites."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source_tree import ROOT

PROSE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs",
    "mqworker",
    "services",
    "examples",
)
"""Not the tests: they misspell on purpose."""

pytestmark = pytest.mark.skipif(
    shutil.which("codespell", path=Path(sys.executable).parent) is None, reason="no codespell"
)


def spelling(*paths: str) -> str:
    """What codespell says about them."""
    command = [sys.executable, "-m", "codespell_lib", "--toml", str(ROOT / "pyproject.toml"), *paths]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


def test_no_word_is_misspelt() -> None:
    assert spelling(*PROSE) == ""


def test_a_misspelt_word_is_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("The dispatcher recieves mail.")

    assert "recieves ==> receives" in spelling(str(tmp_path))
