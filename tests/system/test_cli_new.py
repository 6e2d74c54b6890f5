"""What `mqworker new` makes is a project that runs: a node in one terminal, the script in another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.deadline import wait_until

DEADLINE_S = 30.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
MQWORKER = [sys.executable, "-m", "mqworker"]


def test_a_new_project_runs(tmp_path: Path) -> None:
    subprocess.run([*MQWORKER, "new", "shop"], cwd=tmp_path, env=ENVIRONMENT, check=True, capture_output=True)
    folder = tmp_path / "shop"
    node = subprocess.Popen(
        [*MQWORKER, "run", "shop:app", "--workers", "1"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: is_ready(folder) or node.poll() is not None, "the node is ready", DEADLINE_S)
        done = subprocess.run(
            [sys.executable, "shop.py"],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        node.send_signal(signal.SIGTERM)
        assert node.wait(DEADLINE_S) == 0

    assert done.stdout.splitlines() == ["Hello, world!", "HELLO, WORLD!"], done.stderr


def is_ready(folder: Path) -> bool:
    command = [*MQWORKER, "health", "--ready"]
    return (
        subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, check=False).returncode == 0
    )
