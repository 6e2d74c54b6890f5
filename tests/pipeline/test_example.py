"""The example of a million tasks, with a few thousand: it runs as its first lines say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mqworker.supervisor.status_socket import read_snapshots
from mqworker_services.pipeline.launcher import has_java
from tests.pipeline.quick_java import QUICK_ENVIRONMENT
from tests.support.deadline import wait_until

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 300.0


@pytest.mark.skipif(not has_java(), reason="no Java: install Java 17, or pip install 'mqworker[java]'")
def test_the_example_enqueues_runs_archives_and_asks(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "spark_million.py", tmp_path)
    node = [sys.executable, "-m", "mqworker", "run", "spark_million:app", "--workers", "1"]
    with (
        (tmp_path / "node.log").open("wb") as log,
        subprocess.Popen(node, cwd=tmp_path, stdout=log, stderr=log) as running,
    ):
        try:
            # The script would start a server of its own in the background, if it came before the node's.
            data_dir = tmp_path / ".mqworker"
            wait_until(
                lambda: any(found and found["complete"] for found in read_snapshots(data_dir, 5.0).values()),
                "the node is complete",
                DEADLINE_S,
            )
            script = [sys.executable, "spark_million.py", "3000"]
            done = subprocess.run(
                script,
                cwd=tmp_path,
                env=os.environ | QUICK_ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
        finally:
            running.terminate()

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^3,000 rows enqueued in ", done.stdout)
    # Each task was enqueued and succeeded; a node may report more about a task that it gave back.
    found = re.search(r"^([\d,]+) events archived: none missing, none twice$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert "ship: 3,000 succeeded, " in done.stdout
    assert int(found.group(1).replace(",", "")) >= 6_000
