"""Hostile minutes: a fuzzer against the live node, its three gateways and its keys, and a client beside it.

One drill for everything that is read: nobody dies of it, a well-behaved client never waits more than a second
for an answer, and `status` and `mqworker doctor` name everything that is quarantined.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from tests.drills.conftest import Report, Sized
from tests.drills.hostile import Fuzzer, Lying, Place, named_by, named_in
from tests.drills.steady_client import ClientProcess, Notes, RunDelays, beyond
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.system.foreign_app import QUEUE, app

LONGEST_ANSWER_S = 1.0
LOOK_EVERY_S = 5.0
LOOK_FOR_S = 60.0
SEED_VARIABLE = "DRILL_SEED"
GATEWAYS = ("redismq", "gomq", "skmq")
EXACT_KINDS = {"queue name", "schedule", "consumer"}
"""Of these nodes count exactly what lies there; of a member of a workflow also what cannot go on."""


class Clients:
    """The well-behaved client, and the control beside it."""

    def __init__(self, server: RealServer, bare: RealServer, redismq_port: int, closing: ExitStack) -> None:
        self._processes = [
            ClientProcess("echo", bare.url),
            ClientProcess("control", bare.url),
            ClientProcess("calls", server.url, str(redismq_port)),
        ]
        for process in self._processes:
            closing.callback(process.kill)

    @property
    def pid(self) -> int:
        """The well-behaved client's."""
        return self._processes[-1].pid

    def stop(self) -> tuple[Notes, Notes]:
        """What the client and the control noted."""
        echo, control, calls = self._processes
        noted = calls.stop(), control.stop()
        echo.stop()
        return noted


def test_hostile_minutes(report: Report, sized: Sized) -> None:
    seconds, seed = sized(25, 600), int(os.environ.get(SEED_VARIABLE) or secrets.randbelow(2**31))
    with ExitStack() as closing:
        server, bare = closing.enter_context(RealServer()), closing.enter_context(RealServer())
        node, raw = closing.enter_context(_node(server)), closing.enter_context(server.client())
        places = {name: _place(node, name) for name in GATEWAYS}
        before = _generations(node)
        fuzzer = Fuzzer(raw, seed, QUEUE, places)
        clients = Clients(server, bare, places["redismq"][1], closing)
        on_the_way = ("gateway:redismq", "broker", "dispatcher", "worker:0", "worker:1")
        delays = RunDelays([server.pid, clients.pid, *(node.child(name)["pid"] for name in on_the_way)])

        passed = _strike_for(seconds, fuzzer, server, node.directory)
        steady, control = clients.stop()
        delays.stop()

        lying = Lying(raw, [app.name.encode()])
        unnamed = _looked_for(lambda: _unnamed(lying.count_by_place(), server, node.directory))
        answered, count_by_place = beyond(steady, control, delays), lying.count_by_place()
        report(
            f"seed {seed}: {sum(fuzzer.strikes.values())} strikes in {seconds} s, {steady.answers} answers, "
            f"the longest after {steady.longest_s() * 1000:.0f} ms, a bare echo's after "
            f"{control.longest_s() * 1000:.0f} ms, without the machine's own delays after "
            f"{max((each[1] for each in answered), default=0) * 1000:.0f} ms; "
            f"{sum(count_by_place.values())} things in {len(count_by_place)} places named, "
            f"and {len(fuzzer.passing)} places of passing ones"
        )
        deaths = [line for line in node.log().splitlines() if "child_ended" in line]
        assert _generations(node) == before, deaths
        assert steady.trouble == []
        assert steady.answers > seconds
        assert [each for each in answered if each[1] > LONGEST_ANSWER_S] == []
        assert unnamed == {}
        assert fuzzer.passing.keys() - passed == set()


def _strike_for(seconds: int, fuzzer: Fuzzer, server: RealServer, directory: Path) -> set[Place]:
    """Strike; and look at times at what `status` names, for of wake-ups it does so for half a minute."""
    named: set[Place] = set()
    ends_at, look_at = time.monotonic() + seconds, time.monotonic() + LOOK_EVERY_S
    while time.monotonic() < ends_at:
        fuzzer.strike()
        time.sleep(0.005)
        if time.monotonic() >= look_at:
            named |= named_by(_status(server, directory)).keys()
            look_at = time.monotonic() + LOOK_EVERY_S

    def look() -> set[Place]:
        named.update(named_by(_status(server, directory)))
        return fuzzer.passing.keys() - named

    _looked_for(look)
    return named


LeftT = TypeVar("LeftT", set[Place], dict[Place, tuple[int, int]])


def _looked_for(look: Callable[[], LeftT]) -> LeftT:
    """What is left to be named: nothing, unless time runs out."""
    ends_at = time.monotonic() + LOOK_FOR_S
    while (left := look()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    return left


def _unnamed(lying: dict[Place, int], server: RealServer, directory: Path) -> dict[Place, tuple[int, int]]:
    """What lies there and is not named in its number, by `status` or by `doctor`."""
    status, doctor = named_by(_status(server, directory)), named_in(_doctor(server, directory))
    left = {}
    for place, count in lying.items():
        named = max(status.get(place, 0), doctor.get(place, 0))
        is_right = named == count if place[0] in EXACT_KINDS else named >= count
        if not is_right:
            left[place] = (count, named)
    return left


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
    found: dict[str, Any] = json.loads(_typed(server, directory, "status", "--json"))
    return found


def _doctor(server: RealServer, directory: Path) -> str:
    return _typed(server, directory, "doctor").decode()


def _typed(server: RealServer, directory: Path, *words: str) -> bytes:
    shown = subprocess.run(
        [sys.executable, "-m", "mqworker", *words, "--redis-url", server.url],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert shown.returncode in {0, 1}, shown.stdout + shown.stderr
    return shown.stdout
