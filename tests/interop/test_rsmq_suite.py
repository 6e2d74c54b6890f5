"""The tests that the npm package brings along, run on us in its place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.rsmq_clients import CannotInstall, npm_packages
from tests.support.real_server import RealServer

HERE = Path(__file__).parent
SUITE = "rsmq@0.8.3"  # the last release whose package holds its tests
DEADLINE_S = 120


@pytest.fixture
def suite(clients: Path, tmp_path: Path) -> Path:
    """The package's tests in a folder where what they test is our shim."""
    try:
        modules = npm_packages(
            clients / "npm-suite", SUITE, "mocha@10.8.2", "should@13.2.3", "async@2.6.4", "lodash@4.17.21"
        )
    except CannotInstall as reason:
        pytest.skip(f"no npm rsmq with its tests: {reason}")
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "test").mkdir()
    shutil.copy(modules / "rsmq" / "test" / "test.js", tmp_path / "test")
    shutil.copy(HERE / "rsmq_shim.js", tmp_path / "index.js")
    return tmp_path


@pytest.mark.usefixtures("raw")
def test_the_tests_of_the_npm_package_pass(server: RealServer, suite: Path) -> None:
    """M22, as far as the package has its tests with it."""
    mocha = suite / "node_modules" / "mocha" / "bin" / "mocha.js"
    report = suite / "report.json"

    subprocess.run(
        [
            "node",
            str(mocha),
            "--exit",
            "--reporter",
            "json",
            f"--reporter-option=output={report}",
            "test/test.js",
        ],
        cwd=suite,
        env={
            **os.environ,
            "SHIM_PYTHON": sys.executable,
            "SHIM_REDIS_URL": server.url,
            "PYTHONPATH": str(HERE.parents[1]),
        },
        timeout=DEADLINE_S,
        check=False,
    )

    outcome = json.loads(report.read_text())
    assert [each["fullTitle"] for each in outcome["failures"]] == []
    assert (outcome["stats"]["passes"], outcome["stats"]["pending"]) == (68, 0)
