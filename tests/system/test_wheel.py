"""The wheel, installed beside an application that has a package `services` of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from mqworker_services.gateways.gomq.client import GomqClient
from mqworker_services.pipeline.launcher import has_java
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

pytest.importorskip("hatchling", reason="hatchling is not installed: make setup")

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
TASKS = """
from mqworker import App

app = App("shop")


@app.task
def double(number: int) -> int:
    return 2 * number
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; what it is built with is installed, so nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True, stdin=subprocess.DEVNULL)
    (built,) = folder.glob("*.whl")
    return built


class Project:
    """An application with a package `services`, in a virtualenv where mqworker came from the wheel."""

    def __init__(self, folder: Path, wheel: Path, redis_url: str) -> None:
        self.folder = folder
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MQWORKER"))
        } | {"MQWORKER_REDIS_URL": redis_url, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
        environment = folder / "env"
        venv.create(environment, symlinks=True)
        self.python = environment / "bin" / "python"
        libraries = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(libraries)
        # The dependencies, but not the checkout: a path file inside another path file's folder is not read.
        (libraries / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
        (folder / "services").mkdir()
        (folder / "services" / "__init__.py").write_text("")
        (folder / "services" / "shop.py").write_text(TASKS)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start `mqworker` in the project."""
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self.python, "-m", "mqworker", *arguments],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def run(self, *command: str) -> str:
        """Run Python in the project; what it printed."""
        return subprocess.run(
            [self.python, *command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=120,
        ).stdout

    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def project(wheel: Path, tmp_path: Path) -> Iterator[Project]:
    with RealServer() as server:
        yield Project(tmp_path, wheel, server.url)


def test_the_wheel_installs_three_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist()}

    packages = {name for name in names if not name.endswith(".dist-info")}
    assert packages == {"mqworker", "mqworker_services", "pyspark_mqworker"}


def test_every_script_and_template_is_in_the_wheel(wheel: Path) -> None:
    data = ("*.lua", "*.html", "*.css", "*.properties", "py.typed")
    here = {
        file.relative_to(top).as_posix()
        for top in (ROOT, ROOT / "services")
        for package in ("mqworker", "mqworker_services")
        for pattern in data
        for file in (top / package).rglob(pattern)
    }

    with zipfile.ZipFile(wheel) as archive:
        assert here <= set(archive.namelist())
    assert len(here) > 80


def test_every_gateway_runs_beside_a_package_services(project: Project) -> None:
    ports = {name: free_port() for name in ("redismq", "skmq", "gomq")}
    gateways = [word for name, port in ports.items() for word in ("--gateway", f"{name}=127.0.0.1:{port}")]
    node = project.start("run", "services.shop:app", "--workers", "1", *gateways)
    try:
        wait_until(lambda: project.run("-c", PROBE) == "ready", "the node is ready", DEADLINE_S)

        answer = project.run(
            "-c", "from services.shop import double; print(double.delay(21).result(timeout=30), end='')"
        )
        with redis.Redis(port=ports["redismq"]) as client:
            pushed = client.execute_command("MQ.PUSH", "inbox", "a message")
        with socket.create_connection(("127.0.0.1", ports["skmq"]), DEADLINE_S) as sender:
            sender.sendall(b"type=queue\r\nappid=shop\r\nmsgid=1\r\ncontent=a message\r\n\r\n")
            accepted = sender.recv(4096)
        with GomqClient(f"127.0.0.1:{ports['gomq']}") as subscriber:
            subscriber.subscribe("a-topic", "a-consumer")
            grpc_answer = subscriber.observe("a-consumer")

        assert answer == "42"
        assert pushed
        assert b"ack" in accepted
        assert grpc_answer == []
    finally:
        node.terminate()
        assert node.wait(30) == 0, project.log()


PROBE = """
import subprocess, sys
done = subprocess.run([sys.executable, "-m", "mqworker", "health", "--ready"], capture_output=True)
print("ready" if done.returncode == 0 else done.stderr.decode(), end="")
"""


@pytest.mark.skipif(not has_java(), reason="no Java: install Java 17, or pip install 'mqworker[java]'")
def test_the_pipeline_runs_beside_a_package_services(project: Project) -> None:
    project.run("-c", "from services.shop import double; double.enqueue_many([(n,) for n in range(100)])")

    project.run("-m", "mqworker", "pipeline", "archive", "--once", "--master", "local[1]")
    report = json.loads(project.run("-m", "mqworker", "pipeline", "report", "--json", "--master", "local[1]"))

    assert report
    assert "100 events" in project.run("-m", "mqworker", "pipeline", "verify", "--master", "local[1]")
