"""On a real standalone cluster: a master and a worker on loopback, executors in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from services.pipeline.launcher import has_java
from tests.pipeline.event_factory import append_events
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0


@contextmanager
def daemon(log: Path, said: str, *arguments: str) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [SPARK_CLASS, *arguments],
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"} | _java(),
        )
    try:
        wait_until(lambda: said in log.read_text(), f"{said!r} of {arguments[0]}", DEADLINE_S)
        yield
    finally:
        process.terminate()
        process.wait()


def _java() -> dict[str, str]:
    import os  # noqa: PLC0415

    from services.pipeline.launcher import prepare_environment  # noqa: PLC0415

    prepare_environment()
    return {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    if not has_java():
        pytest.skip("no Java: install Java 17, or pip install 'mqworker[java]'")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            daemon(
                tmp_path / "master.log",
                "I have been elected leader",
                *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
                *("--port", str(port), "--webui-port", str(free_port())),
            )
        )
        stack.enter_context(
            daemon(
                tmp_path / "worker.log",
                "Successfully registered with master",
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"),
                *("--cores", "1", "--memory", "1g", "--webui-port", str(free_port())),
                *("--work-dir", str(tmp_path / "work"), url),
            )
        )
        yield url


@pytest.mark.usefixtures("settings")
def test_a_cluster_archives_and_verifies(master: str, server: RealServer, tmp_path: Path) -> None:
    with server.client() as client:
        made = append_events(client, "mail", 5_000)

    archived = pipeline(master, server, tmp_path, "archive", "--once", "--trim")
    verified = pipeline(master, server, tmp_path, "verify")

    assert f"{made:,} events archived" in archived
    assert f"{made:,} events in 20 blocks: none missing, none twice" in verified


def pipeline(master: str, server: RealServer, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "mqworker", "pipeline", *arguments]
    command += ["--master", master, "--redis-url", server.tcp_url, "--lake", str(folder / "lake")]
    command += ["--conf", "spark.executor.memory=512m"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
