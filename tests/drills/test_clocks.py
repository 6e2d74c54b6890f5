"""D14: the clocks of clients are an hour off, one way and the other. Only the server's counts."""

from __future__ import annotations

import time

import pytest

from mqworker.model.clock import SystemClock
from mqworker.model.instant import After
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.store import Store
from tests.drills.conftest import Report, Sized
from tests.drills.node import PATIENT
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.messages import some_messages
from tests.support.real_server import RealServer

HOUR_S = 3_600
LEASE_MS = 600
DELAY_MS = 400


class WrongClock:
    """The host's clock, set wrongly."""

    def __init__(self, shift_s: int) -> None:
        self._shift_ms = shift_s * 1_000
        self._clock = SystemClock()

    def now_ms(self) -> int:
        """Wrong by the shift."""
        return self._clock.now_ms() + self._shift_ms

    def monotonic_ms(self) -> int:
        """As it is: nobody sets it."""
        return self._clock.monotonic_ms()


@pytest.mark.parametrize("shift_s", [HOUR_S, -HOUR_S], ids=["fast", "slow"])
def test_d14_no_lease_ends_early_or_never(
    server: RealServer, sized: Sized, report: Report, shift_s: int
) -> None:
    count = sized(200, 500)
    wrong, right = (_queue(server, shift) for shift in (shift_s, 0))
    wrong.enqueue(*some_messages(count // 2))
    wrong.enqueue(*some_messages(count // 2, due=After(DELAY_MS)))
    early = right.promote()
    claimed = wrong.claim(count, lease_ms=LEASE_MS)
    reclaimed_early = sum(right.reclaim()) + sum(wrong.reclaim())

    wait_until(lambda: sum(wrong.reclaim()) == count // 2, "all leases end, and not before")
    wait_until(lambda: right.promote() == -1, "all delays end")
    again = right.claim(count)
    lost = wrong.settle(*map(Ack, claimed))
    settled = right.settle(*map(Ack, again))

    report(f"{count} messages, clock {shift_s:+} s: reclaimed early {reclaimed_early}, refused {len(lost)}")
    assert early > 0
    assert (len(claimed), reclaimed_early) == (count // 2, 0)
    assert len(again) == count
    assert len(lost) == count // 2
    assert settled == []


def test_d14_nodes_whose_clocks_differ_by_two_hours_share_the_work(
    scene: Scene, sized: Sized, report: Report
) -> None:
    count = sized(1_000, 3_000)
    heartbeat = {"heartbeat_interval_s": 0.2, "heartbeat_timeout_s": 2.0}
    nodes = [
        scene.add_node(program=(*PATIENT, "--clock-shift-s", str(shift)), settings=heartbeat)
        for shift in (HOUR_S, -HOUR_S)
    ]
    for node in nodes:
        node.wait_complete()
    scene.publish("hold", 4, 2.5)
    scene.publish("work", count)
    scene.publish("fail_once", 50)
    time.sleep(0.2)
    scene.wait_drained()

    account = scene.account()
    pids = [{child["pid"] for child in node.snapshot()["children"]} for node in nodes]
    shares = [sum(run.pid in some for run in account.executions) for some in pids]
    report(f"{account.summary()}; runs by node {shares}")
    account.check()
    assert account.duplicates == 0
    assert min(shares) > 0
    assert [node.stop() for node in nodes] == [0, 0]


def _queue(server: RealServer, shift_s: int) -> WorkQueue:
    connection = open_connection(
        parse_address(server.url), connect_timeout_s=2.0, read_timeout_s=5.0, client_name="drill"
    )
    return WorkQueue("drill", Store(connection, clock=WrongClock(shift_s)))
