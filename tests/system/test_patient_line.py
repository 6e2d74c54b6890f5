"""`mqworker serve --patient`, as in the Procfile: a port that is taken is said, and waited for."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

DEADLINE_S = 60.0


def test_a_gateway_whose_port_is_taken_says_so_and_waits(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with RealServer() as server, socket.create_server(("127.0.0.1", port)), log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "mqworker", "serve", "skmq", "--patient", "--listen", f"127.0.0.1:{port}"],
            cwd=tmp_path,
            env=os.environ | {"MQWORKER_REDIS_URL": server.url},
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(lambda: "tries again in" in log.read_text(), "it says so", DEADLINE_S)

            assert process.poll() is None
            assert str(port) in log.read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(DEADLINE_S)


def test_every_gateway_of_the_procfile_is_patient() -> None:
    lines = (Path(__file__).parents[2] / "Procfile").read_text().splitlines()
    gateways = [line for line in lines if "mqworker serve" in line]

    assert gateways
    assert all("--patient" in line for line in gateways)
