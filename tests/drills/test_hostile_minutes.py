"""Hostile minutes: a fuzzer against the live node, its three gateways and its keys, and a client beside it.

One drill for everything that is read: nobody dies of it, a well-behaved client is answered in time all along,
and `status` names what is quarantined.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from mqworker import App
from tests.drills.conftest import Report, Sized
from tests.drills.hostile import Fuzzer, named_by
from tests.support.deadline import wait_until
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient
from tests.system.foreign_app import QUEUE, echo

LONGEST_ANSWER_S = 1.0
# The promise is a second on a machine of one's own. The fuzzer, the server and eleven processes of the node
# share two cores here, at times with other tests: a process alone may wait so long for its turn.
SHARE = float(os.environ.get("DRILL_SHARE", "4"))
SEED_VARIABLE = "DRILL_SEED"
GATEWAYS = ("redismq", "gomq", "skmq")


class SteadyClient:
    """Calls a task, and pushes and pops at the gateway, one after the other; notes how long each took."""

    def __init__(self, url: str, redismq_port: int) -> None:
        self.longest_s = 0.0
        self.answers = 0
        self.trouble: list[str] = []
        self._app = App("foreign", redis_url=url)
        self._echo = self._app.task(queue=QUEUE, name=echo.name)(_echo)
        self._port = redismq_port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(60)
        self._app.close()

    def _work(self) -> None:
        number = 0
        with RespClient(self._port) as gateway:
            while not self._is_over.is_set():
                number += 1
                began = time.monotonic()
                try:
                    assert self._echo.enqueue(f"w{number}").result(timeout=30) == f"w{number}"
                    self._note(began)
                    began = time.monotonic()
                    pushed = gateway.say("MQ.PUSH", "calm", f"e{number}")
                    popped = gateway.say("MQ.POP", "1", "calm")
                    assert popped[0][1] == f"e{number}".encode(), (pushed, popped)
                    assert gateway.say("MQ.ACK", "calm", popped[0][0])
                    self._note(began)
                except Exception as error:  # noqa: BLE001 - the drill tells of it
                    self.trouble.append(repr(error))
                self._is_over.wait(0.02)

    def _note(self, began: float) -> None:
        self.answers += 1
        self.longest_s = max(self.longest_s, time.monotonic() - began)


def _echo(word: str) -> str:
    return word


def test_hostile_minutes(report: Report, sized: Sized) -> None:
    seconds, seed = sized(25, 600), int(os.environ.get(SEED_VARIABLE) or secrets.randbelow(2**31))
    with RealServer() as server, _node(server) as node, server.client() as raw:
        places = {name: _place(node, name) for name in GATEWAYS}
        before = _generations(node)
        client = SteadyClient(server.url, places["redismq"][1])
        fuzzer = Fuzzer(raw, seed, QUEUE, places)
        client.start()
        named: set[tuple[str, str]] = set()
        ends_at, look_at = time.monotonic() + seconds, time.monotonic() + 5

        while time.monotonic() < ends_at:
            fuzzer.strike()
            time.sleep(0.005)
            if time.monotonic() >= look_at:
                named |= named_by(_status(server, node.directory))
                look_at = time.monotonic() + 5
        client.stop()

        # What lies on the server to the end is named at the end, too.
        raw.sadd("mqw:queues", b"\xfflast")
        wait_until(
            lambda: ("queue name", "mqw:queues") in named_by(_status(server, node.directory)),
            "status names what is quarantined",
            30.0,
        )
        strikes = sum(fuzzer.strikes.values())
        report(
            f"seed {seed}: {strikes} strikes in {seconds} s, {client.answers} answers, the longest after "
            f"{client.longest_s * 1000:.0f} ms; {len(named)} kinds of things quarantined"
        )
        deaths = [line for line in node.log().splitlines() if "child_ended" in line]
        assert _generations(node) == before, deaths
        assert client.trouble == []
        assert client.answers > seconds
        assert client.longest_s < LONGEST_ANSWER_S * SHARE
        assert {"schedule", "consumer", "wake-up"} <= {kind for kind, _ in named}


def _node(server: RealServer) -> RealNode:
    settings = {
        "MQWORKER_GATEWAYS": ",".join(f"{name}=127.0.0.1:0" for name in GATEWAYS),
        "MQWORKER_WORKERS": "2",
        "MQWORKER_LOG_FORMAT": "json",
        "PYTHONPATH": str(ROOT),
    }
    return RealNode(server.url, "tests.system.foreign_app:app", settings=settings)


def _place(node: RealNode, gateway: str) -> tuple[str, int]:
    host, _, port = node.facts(f"gateway:{gateway}")["listens"].rpartition(":")
    return host, int(port)


def _generations(node: RealNode) -> dict[str, int]:
    return {child["name"]: child["generation"] for child in node.snapshot()["children"]}


def _status(server: RealServer, directory: Path) -> dict[str, Any]:
    shown = subprocess.run(
        [sys.executable, "-m", "mqworker", "status", "--json", "--redis-url", server.url],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert shown.returncode in {0, 1}, shown.stdout + shown.stderr
    found: dict[str, Any] = json.loads(shown.stdout)
    return found
