"""The pytest plugin of the package: there without being asked for, costs nothing, and its fixtures work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SHOP = """
from mqworker import App

app = App("shop")

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""

TESTS = """
import pytest
import shop

@pytest.fixture
def mqworker_app():
    return shop.app

def test_the_bench_of_the_app(bench):
    job = shop.add.delay(1, 2)
    assert bench.run_all().succeeded == 1
    assert job.result() == 3

def test_another_bench_is_empty(mqworker_bench):
    assert mqworker_bench(shop.app).jobs == []
"""


def test_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, mqworker.testing.plugin; print({'fakeredis', 'lupa', 'redis'} & sys.modules.keys())"

    assert run("-c", code).stdout == "set()\n"


def test_its_fixtures_put_an_app_on_a_bench(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "test_shop.py").write_text(TESTS)

    done = run("-m", "pytest", "-q", "-W", "error", folder=tmp_path)

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_bench_without_an_app_says_what_to_define(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text("def test_it(bench): ...")

    done = run("-m", "pytest", "-q", folder=tmp_path)

    assert "define a fixture `mqworker_app`" in done.stdout


def run(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python, as a user starts it."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
