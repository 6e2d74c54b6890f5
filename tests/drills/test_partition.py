"""D21: the network is cut for longer than a call waits; TCP delivers afterwards what was sent before."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.drill_app import ONCE_QUEUE, QUEUE
from tests.support.network_namespaces import NEAR_ADDRESS, NetworkNamespaces, why_not
from tests.support.node_process import ROOT
from tests.support.real_server import RealServer

QUEUES = (QUEUE, ONCE_QUEUE)
CUT_S = 7.0
"""Calls wait 5 s for an answer, and are then sent again on another connection."""
DELIVERED_AFTER_S = 7.0
"""TCP doubles its pauses: what it sent in vain after 6.2 s, it sends again after 12.6 s."""
DEADLINE_S = 120.0
PUBLISHERS = 6
"""About every second one has a request under way when the line is cut."""


def test_d21_what_was_sent_before_a_partition_and_again_after_it_is_carried_out_once(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    cuts = sized(1, 6)
    with (
        NetworkNamespaces() as network,
        RealServer(
            *("--bind", NEAR_ADDRESS, "--protected-mode", "no"), inside=network.within(network.near)
        ) as server,
    ):
        url = f"redis://{NEAR_ADDRESS}:{server.port}"
        scene = make_scene(server.url)  # the drill itself looks through the unix socket
        node = scene.add_node(
            url=url, inside=network.within(network.far), settings={"heartbeat_timeout_s": 60.0}
        )
        node.wait_complete()
        publish = [
            *network.within(network.far),
            *(sys.executable, "-m", "tests.drills.far_publisher", url, str(scene.ledger_folder)),
            str(1 + cuts * (CUT_S + DELIVERED_AFTER_S)),
        ]
        publishers = [subprocess.Popen(publish, cwd=ROOT) for _ in range(PUBLISHERS)]
        scene.wait_executed(100)
        for _ in range(cuts):
            network.cut(CUT_S)
            time.sleep(DELIVERED_AFTER_S)
        assert [each.wait(DEADLINE_S) for each in publishers] == [0] * PUBLISHERS
        scene.wait_drained(DEADLINE_S, queues=QUEUES)
        assert node.stop() == 0

        account = scene.account(queues=QUEUES)
        report(f"{cuts} partitions of {CUT_S:g} s; {account.summary()}")
        account.check_exact()
        scene.close()
