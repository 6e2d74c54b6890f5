"""The Procfile as it is, under Honcho: everything comes up, every gateway works, and a stop loses nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis

from mqworker.errors import MqworkerError
from mqworker.store.embedded.share import stop_server
from mqworker_services.gateways.gomq.client import GomqClient
from tests.support.deadline import wait_until
from tests.support.real_server import free_port

ROOT = Path(__file__).parents[2]
BINARIES = Path(sys.executable).parent
DEADLINE_S = 60.0
HONCHO_KILLS_AFTER_S = 5.0
ORDERS = 2_000
APP = """
from pathlib import Path
from mqworker import App

app = App("shop")


@app.task
def double(number: int) -> int:
    return number * 2


@app.task
def note(number: int) -> None:
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{number}\\n")
"""

pytestmark = pytest.mark.skipif(shutil.which("honcho", path=str(BINARIES)) is None, reason="no Honcho")


class Procfile:
    """A directory with an application, in which `honcho start` is typed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log_path = directory / "log"
        self.ports = {name: free_port() for name in ("skmq", "gomq", "redismq")}
        self._environment = {
            **os.environ,
            "PATH": f"{BINARIES}:{os.environ['PATH']}",
            "PYTHONPATH": f"{directory}:{ROOT}",
            "PYTHONUNBUFFERED": "1",
            **{f"{name.upper()}_LISTEN": f"127.0.0.1:{port}" for name, port in self.ports.items()},
        }
        self._honcho: subprocess.Popen[bytes] | None = None
        (directory / "shop.py").write_text(APP)

    def start(self) -> None:
        """Type it, and wait until every node is ready."""
        before = self.log().count("node_ready")
        with self.log_path.open("ab") as log:
            self._honcho = subprocess.Popen(
                ["honcho", "--procfile", str(ROOT / "Procfile"), "--app-root", ".", "start"],
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until(lambda: self.log().count("node_ready") == before + 4, f"all: {self.log_path}", DEADLINE_S)

    def stop(self) -> float:
        """TERM, as a service manager sends it; how many seconds it took."""
        assert self._honcho is not None
        began = time.monotonic()
        self._honcho.send_signal(signal.SIGTERM)
        self._honcho.wait(DEADLINE_S)
        return time.monotonic() - began

    def python(self, code: str) -> str:
        """What a program says that is run beside them."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def log(self) -> str:
        return self.log_path.read_text() if self.log_path.exists() else ""

    def noted(self) -> list[int]:
        return [int(line) for line in (self.directory / "ledger").read_text().split()]

    def end(self) -> None:
        """Leave nothing behind."""
        if self._honcho is not None and self._honcho.poll() is None:
            self.stop()
        with suppress(MqworkerError):
            stop_server(self.directory / ".mqworker")


@pytest.fixture
def procfile() -> Iterator[Procfile]:
    """Not below pytest's own folder: the path of a unix socket must be short."""
    with tempfile.TemporaryDirectory(prefix="mqw-") as folder:
        running = Procfile(Path(folder))
        yield running
        running.end()


def test_every_gateway_works_and_a_stop_loses_nothing(procfile: Procfile) -> None:
    procfile.start()

    assert procfile.python("from shop import double; print(double.delay(21).result(timeout=60))") == "42"
    assert b"Message enqueue successful" in through_skmq(procfile.ports["skmq"])
    assert through_gomq(procfile.ports["gomq"]) == b"by gRPC"
    assert through_redismq(procfile.ports["redismq"]) == b"by RESP"

    enqueue = f"from shop import note; note.enqueue_many([(n,) for n in range({ORDERS})])"
    procfile.python(enqueue)
    with GomqClient(f"127.0.0.1:{procfile.ports['gomq']}") as client:
        client.publish("kept", b"until somebody listens")
    with redis.Redis(port=procfile.ports["redismq"], socket_timeout=DEADLINE_S) as client:
        client.execute_command("MQ.PUSH", "kept", "until somebody pops")
    seconds = procfile.stop()

    assert "SIGKILL" not in procfile.log()
    assert seconds < HONCHO_KILLS_AFTER_S + 1  # Honcho itself needs a moment
    procfile.start()
    wait_until(lambda: len(set(procfile.noted())) == ORDERS, "all orders were noted", DEADLINE_S)
    assert sorted(procfile.noted()) == list(range(ORDERS))  # a stop is not a crash: nothing ran twice
    with GomqClient(f"127.0.0.1:{procfile.ports['gomq']}") as client:
        client.subscribe("kept", "late")
        assert observe_one(client, "late") == b"until somebody listens"
    with redis.Redis(port=procfile.ports["redismq"], socket_timeout=DEADLINE_S) as client:
        assert client.execute_command("MQ.POP", 10, "kept")[0][1] == b"until somebody pops"
    assert b"message already exists, ID: 1" in through_skmq(procfile.ports["skmq"])  # nobody took it yet


def through_skmq(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as plain:
        plain.sendall(b"type=queue\r\nappid=shop\r\nmsgid=1\r\ncontent=by a socket\r\n\r\n")
        return plain.recv(4096)


def through_gomq(port: int) -> bytes:
    with GomqClient(f"127.0.0.1:{port}", timeout_s=DEADLINE_S) as client:
        client.subscribe("parcel", "BAR")
        client.publish("parcel", b"by gRPC")
        return observe_one(client, "BAR")


def observe_one(client: GomqClient, consumer: str) -> bytes:
    found: list[bytes] = []
    wait_until(
        lambda: found.extend(record.payload for record in client.observe(consumer)) or found,
        "a record came",
        DEADLINE_S,
    )
    return found[0]


def through_redismq(port: int) -> bytes:
    with redis.Redis(port=port, socket_timeout=DEADLINE_S) as client:
        client.execute_command("MQ.PUSH", "parcel", "by RESP")
        [[pushed_id, element]] = [client.execute_command("MQ.POP", 1, "parcel")[0][:2]]
        client.execute_command("MQ.ACK", "parcel", pushed_id)
        return bytes(element)


def test_an_archiver_that_cannot_run_does_not_stop_the_others(tmp_path: Path) -> None:
    """Honcho stops everything when one process ends: the line says why, and waits."""
    [line] = re.findall(r"^archiver: (.*)$", (ROOT / "Procfile").read_text(), re.MULTILINE)
    (tmp_path / "mqworker").write_text("#!/bin/sh\necho 'no Java here' >&2\nexit 78\n")
    (tmp_path / "mqworker").chmod(0o755)

    with subprocess.Popen(
        ["sh", "-c", line],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        assert shell.stdout is not None
        said = [shell.stdout.readline(), shell.stdout.readline()]
        is_running = shell.poll() is None
        os.killpg(shell.pid, signal.SIGTERM)

    assert said[0] == "no Java here\n"
    assert "the others go on" in said[1]
    assert is_running
