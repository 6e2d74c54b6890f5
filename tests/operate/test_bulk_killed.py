"""Bulk under kill -9: the command that the audit tells, given again, does the rest, and nothing twice."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections import Counter

import pytest

from mqworker.model.names import MessageId
from mqworker.operate.audit import read_audit
from mqworker.operate.system import System
from tests.operate.test_bulk import bury, enqueue
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

COUNT, KILLS = 2_000, 2
DONE_AS = {"retry": "revived", "drop": "purged", "cancel": "cancelled"}


@pytest.mark.parametrize("action", ["retry", "drop", "cancel"])
def test_a_bulk_that_was_killed_half_way_and_is_given_again_is_exact(
    system: System, server: RealServer, action: str
) -> None:
    queue = system.open_queue("mail")
    make = enqueue if action == "cancel" else bury
    mine, others = make(system, COUNT), make(system, 50, tenant="other")

    command = ["bulk", action, "args.tenant:acme", "--rate", "1500", "--yes"]
    kills = 0
    while _done(system, action) < COUNT and kills < KILLS:
        _kill_half_way(system, server, command, action)
        kills += 1
        command = [*shlex.split(read_audit(system)[0].deed.command)[1:], "--yes"]
    _mqworker(server, command).wait(60)

    assert kills == KILLS
    assert _done(system, action) == COUNT
    found = Counter(queue.find(MessageId(each)).state for each in mine)
    assert (
        found
        == {"retry": {"ready": COUNT}, "drop": {"absent": COUNT}, "cancel": {"cancelled": COUNT}}[action]
    )
    assert {queue.find(MessageId(each)).state for each in others} == {
        "ready" if action == "cancel" else "dead"
    }


def _kill_half_way(system: System, server: RealServer, command: list[str], action: str) -> None:
    before = _done(system, action)
    running = _mqworker(server, command)
    wait_until(lambda: _done(system, action) > before or running.poll() is not None, "some of it", 60)
    running.send_signal(signal.SIGKILL)
    running.wait(10)


def _mqworker(server: RealServer, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "mqworker", command[0], "--redis-url", server.url, *command[1:]],
        stdout=subprocess.DEVNULL,
    )


def _done(system: System, action: str) -> int:
    return system.open_queue("mail").counts().totals.get(DONE_AS[action], 0)
