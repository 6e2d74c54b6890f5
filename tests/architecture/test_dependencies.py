"""What is depended on has an upper bound, and what development runs with is written down by exact version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements-dev.lock").read_text()


def test_every_dependency_has_an_upper_bound() -> None:
    extras = [text for group in PROJECT["optional-dependencies"].values() for text in group]
    asked = [text for text in (*PROJECT["dependencies"], *extras) if not text.startswith("mqworker[")]

    assert [text for text in asked if not re.search(r"<|==", text.partition(";")[0])] == []


def test_the_lock_names_exact_versions_and_no_place_to_get_them_from() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.+!]+", line)] == []
    assert "://" not in LOCK


def test_what_is_asked_for_is_locked() -> None:
    locked = {line.partition("==")[0] for line in LOCK.splitlines()}
    names = {re.split(r"[\[<>=;]", text)[0].lower().replace("_", "-") for text in PROJECT["dependencies"]}

    assert names <= locked
