"""The document's launcher: `--conf` and `--dbconf`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from mqworker.cli.main import mqworker
from tests.services.skmq.plain_sockets import DEADLINE_S, Plain, a_name
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

ROOT = Path(__file__).parents[3]


def test_the_two_files_are_all_that_is_needed(server: RealServer, tmp_path: Path) -> None:
    port = free_port()
    conf, dbconf = tmp_path / "conf.json", tmp_path / "dbconf.json"
    conf.write_text(
        json.dumps(
            {
                "retry_times": 5,
                "ack_timeout": 60000,
                "rate": 1000,
                "listener_host": "127.0.0.1",
                "listener_port": str(port),
            }
        )
    )
    dbconf.write_text(json.dumps({"address": f"127.0.0.1:{server.port}", "password": "", "db": 1}))
    command = [
        sys.executable,
        "-m",
        "mqworker",
        "serve",
        "skmq",
        "--conf",
        str(conf),
        "--dbconf",
        str(dbconf),
    ]
    with (tmp_path / "log").open("wb") as log:
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        wait_until(lambda: _stores(port), "the gateway stores messages", DEADLINE_S)
        with server.client() as raw:
            raw.select(1)
            assert raw.exists("mqw:{skmq}:messages") == 1
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0


def _stores(port: int) -> bool:
    try:
        with Plain(("127.0.0.1", port)) as client:
            return bool(
                client.ask(type="queue", appid="a", msgid=a_name("m"), content="x")["status"] == "ack"
            )
    except OSError:
        return False


def test_a_conf_file_that_is_not_there_ends_the_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(mqworker, ["serve", "skmq", "--conf", str(tmp_path / "none.json")])

    assert result.exit_code == 78
    assert "none.json" in str(result.exception) + result.output


def test_the_files_belong_to_skmq_alone(tmp_path: Path) -> None:
    result = CliRunner().invoke(mqworker, ["serve", "redismq", "--conf", str(tmp_path / "conf.json")])

    assert result.exit_code == 78
    assert "accepted is skmq" in str(result.exception) + result.output
