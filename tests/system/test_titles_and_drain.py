"""What operators see of a node's processes, and what a stop does to tasks that are not done."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mqworker import App
from mqworker.settings import Settings
from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.monitored_node import MonitoredNode
from tests.support.node_process import ROOT
from tests.support.real_node import DEADLINE_S
from tests.support.real_server import RealServer


def test_every_process_says_in_ps_what_it_is() -> None:
    with RealServer() as server, MonitoredNode(server.url, {"MQWORKER_GATEWAYS": "skmq=127.0.0.1:0"}) as node:
        supervisor = psutil.Process(node.process.pid)
        pids = [supervisor.pid, *(child.pid for child in supervisor.children(recursive=True))]
        shown = subprocess.run(
            ["ps", "-o", "args=", *(f"-p{pid}" for pid in pids)], capture_output=True, text=True, check=True
        )
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids}
        environment = psutil.Process(node.child("worker:0")["pid"]).environ()

    titles = sorted(line.strip() for line in shown.stdout.splitlines())
    actors = ["broker", "dispatcher", "gateway skmq", "heartbeat_reaper", "monitor", "rate_limiter"]
    others = ["recovery_scanner", "supervisor", "worker 0", "worker 1"]
    assert titles == [f"mqworker: {name} (shop:app)" for name in (*actors, *others)]
    assert {"mqw worker 0", "mqw dispatcher", "mqw supervisor"} <= names
    assert environment["MQWORKER_WORKERS"] == "2"  # the environment is behind it, and still whole


TITLE_TEST = """
import sys
from pathlib import Path
from mqworker.supervisor.process_title import set_title
set_title("x" * 5_000, "app:" + "y" * 5_000)
set_title("worker:7", "shop:app")
print(repr(Path("/proc/self/cmdline").read_bytes().rstrip(b"\\0")), sys.argv[1])
"""


def test_a_title_is_cut_to_the_room_that_there_is() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TITLE_TEST, "an argument"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert done.stdout == "b'mqworker: worker 7 (shop:app)' an argument\n"


@pytest.mark.parametrize("signals", [1, 2])
def test_a_drain_says_how_long_why_and_how_many_were_cut(signals: int) -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        nap = app.task(name="shop.nap", queue="slow")(lambda _seconds: None)
        patience = "1" if signals == 1 else "60"
        with MonitoredNode(server.url, {"MQWORKER_DRAIN_S": patience}) as node:
            for _ in range(2):
                nap.enqueue(600)
            wait_until(lambda: node.facts("dispatcher")["in_flight"] == 2, "both run", DEADLINE_S)
            line = CommandLine(server)
            wait_until(lambda: "as drain_s says" in line.type("doctor").output, "doctor", DEADLINE_S)
            doctor, status = line.type("doctor").output, json.loads(line.type("status", "--json").output)
            line.store.close()
            for _ in range(signals):
                node.signal(signal.SIGTERM)
                wait_until(lambda: "node_draining" in node.log(), "it drains", DEADLINE_S)
            assert node.process.wait(DEADLINE_S) == 0
            said = [json.loads(each) for each in node.log().splitlines() if each.startswith("{")]

    cut = [each for each in said if each["event"] == "drain_cut"]
    (draining,) = [each for each in said if each["event"] == "node_draining"]
    assert [each["deliveries"] for each in cut] == [2]
    assert (draining["drain_s"], draining["why"]) == (float(patience), "as drain_s says")
    assert f": {patience} s; as drain_s says" in doctor
    assert status["nodes"][0]["drain"] == {"s": float(patience), "why": "as drain_s says"}


def test_on_a_terminal_ctrl_c_waits_for_the_task_and_a_second_one_does_not() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        nap = app.task(name="shop.nap", queue="slow")(lambda _seconds: None)
        node = MonitoredNode(server.url)
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "mqworker", "run", "shop:app", "--workers", "1"]
        environment = os.environ | {"MQWORKER_REDIS_URL": server.url, "PYTHONPATH": str(ROOT)}
        started = subprocess.Popen(
            command,
            cwd=node.directory,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        try:
            job = nap.enqueue(6)
            wait_until(lambda: job.status() == "running", "it runs", DEADLINE_S)
            started.send_signal(signal.SIGINT)
            # Longer than the four seconds that Honcho would leave it.
            assert job.result(DEADLINE_S) is None
            assert started.wait(DEADLINE_S) == 0
        finally:
            started.kill()
            started.wait()
            os.close(ours)
