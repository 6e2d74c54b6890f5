"""On a real standalone cluster: a master and a worker on loopback, executors in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
import pytest

from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.launcher import has_java
from mqworker_services.pipeline.table import NONE_YET, LakeTable
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_events
from tests.pipeline.quick_java import QUICK_ENVIRONMENT
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240.0


@contextmanager
def daemon(
    log: Path,
    said: str,
    *arguments: str,
    hidden: Path | None = None,
    inside: Sequence[str] = (),
    address: str = "127.0.0.1",
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """A daemon of Spark; `hidden` is a folder of which it sees an empty one of its own instead.

    `inside` is what its command begins with, to run in another place.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*inside, *_without(hidden), SPARK_CLASS, *arguments],
            stdout=output,
            stderr=output,
            cwd=log.parent,
            env={"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": address, "SPARK_NO_DAEMONIZE": "1"}
            | QUICK_ENVIRONMENT
            | _java()
            | dict(environment or {}),
        )
    try:
        wait_until(lambda: said in log.read_text(), f"{said!r} of {arguments[0]}", DEADLINE_S)
        yield
    finally:
        process.terminate()
        process.wait()


def _without(hidden: Path | None) -> list[str]:
    if hidden is None:
        return []
    mount = 'mount -t tmpfs none "$0" && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", mount, str(hidden)]


def _can_hide() -> bool:
    """Whether a process may get a mount of its own: root may, where the machine allows it."""
    command = ["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except OSError:
        return False


def _java() -> dict[str, str]:
    from mqworker_services.pipeline.launcher import prepare_environment  # noqa: PLC0415

    prepare_environment()
    return {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}


@contextmanager
def cluster(folder: Path, hidden: Path | None = None) -> Iterator[str]:
    """The URL of a master with one worker."""
    if not has_java():
        pytest.skip("no Java: install Java 17, or pip install 'mqworker[java]'")
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.enter_context(
            daemon(
                folder / "master.log",
                "I have been elected leader",
                *("org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
                *("--port", str(port), "--webui-port", str(free_port())),
            )
        )
        stack.enter_context(
            daemon(
                folder / "worker.log",
                "Successfully registered with master",
                *("org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"),
                *("--cores", "1", "--memory", "1g", "--webui-port", str(free_port())),
                *("--work-dir", str(folder / "work"), url),
                hidden=hidden,
            )
        )
        yield url


def archive(master: str, server: RealServer, lake: Lake) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mqworker", "pipeline", "archive", "--once", "--trim"]
    command += ["--master", master, "--redis-url", server.tcp_url, "--lake", str(lake.root)]
    command += ["--conf", "spark.executor.memory=512m"]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | QUICK_ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


@pytest.mark.usefixtures("settings")
def test_a_cluster_archives(server: RealServer, tmp_path: Path, engine: Engine, lake: Lake) -> None:
    with server.client() as client:
        made = append_events(client, "mail", 5_000)

    with cluster(tmp_path) as master:
        done = archive(master, server, lake)

    assert done.returncode == 0, done.stderr
    assert f"{made:,} events archived" in done.stdout
    assert "Registered app mqworker pipeline" in (tmp_path / "master.log").read_text()
    verdict = verify(engine, lake)
    assert (verdict.problems(), verdict.rows, verdict.blocks) == ([], made, 20)


@pytest.mark.usefixtures("settings")
def test_workers_that_do_not_share_the_disk_of_the_driver_archive_and_trim_nothing(
    server: RealServer, tmp_path: Path, lake: Lake
) -> None:
    if not _can_hide():
        pytest.skip("no mount namespace: needs root")
    Path(lake.root).mkdir(parents=True)
    with server.client() as client:
        append_events(client, "mail", 5_000)

    with cluster(tmp_path, hidden=Path(lake.root)) as master:
        done = archive(master, server, lake)

    with server.client() as client:
        assert client.xlen("mqw:{mail}:events") == 20
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "[rows-not-arrived]" in done.stderr
    assert (LakeTable.open(lake).batch, LakeTable.open(lake).files()) == (NONE_YET, [])
