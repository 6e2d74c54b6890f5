"""D6 and D7: a whole node hangs, or its supervisor is killed; others go on, and nothing is settled twice."""

from __future__ import annotations

import time

import pytest

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.ledger import Account
from tests.drills.scene import Scene
from tests.support.deadline import wait_until
from tests.support.ledger import read_ledger
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

HEARTBEAT = {"heartbeat_interval_s": 0.2, "heartbeat_timeout_s": 2.0}
DEADLINE_S = 90.0
GONE_WITHIN_S = 2.0


def test_d6_a_node_that_hung_finds_its_late_acks_refused(scene: Scene, sized: Sized, report: Report) -> None:
    rounds = sized(1, 6)
    hanging, other = (scene.add_node(settings=HEARTBEAT) for _ in range(2))
    hanging.wait_complete()
    other.wait_complete()
    for _ in range(rounds):
        workers = {pid for name, pid in hanging.live_children().items() if name.startswith("worker:")}
        while not _busy(scene) >= workers:  # one by one, or the other node might take them all
            begun = scene.executed()
            scene.publish("hold", 1, 1.5)
            wait_until(lambda begun=begun: scene.executed() > begun, "somebody has begun it")
        hanging.pause_all()
        scene.publish("work", 300)
        scene.wait_drained(DEADLINE_S)  # the other one is heard, and does it all
        hanging.resume_all()
        hanging.wait_complete()
        wait_until(lambda: _is_idle(scene), "the node has tidied up")
    scene.publish("work", 200)
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    reclaimed = {(each.message, each.attempt) for each in account.endings if each.event == "reclaimed"}
    refused = [run for run in account.finished if (run.message, run.attempt) in reclaimed]
    report(f"{account.summary()}; late acks refused {len(refused)} in {rounds} rounds")
    account.check()
    assert len(refused) == 2 * rounds  # one for each of its workers
    assert [node.stop() for node in (hanging, other)] == [0, 0]


def test_d7_no_process_outlives_its_supervisor(scene: Scene, sized: Sized, report: Report) -> None:
    rounds = sized(3, 20)
    node = scene.add_node(settings=HEARTBEAT)
    slowest_s = 0.0
    for number in range(rounds):
        scene.publish("hold", 2, 0.2)
        scene.publish("work", 300)
        begun = scene.executed()
        wait_until(lambda begun=begun: scene.executed() > begun + 5, "it is at work")
        node.kill_supervisor()
        killed_at = time.monotonic()
        wait_until(lambda: not node.descendants(), "all descendants are gone")
        slowest_s = max(slowest_s, time.monotonic() - killed_at)
        if number % 2:
            time.sleep(0.1)
        node.start()
    scene.wait_drained(DEADLINE_S)
    node.wait_complete()

    account = scene.account()
    report(f"{account.summary()}; descendants gone within {slowest_s:.2f} s")
    account.check()
    assert account.kills["supervisor"] == rounds
    assert slowest_s < GONE_WITHIN_S
    assert node.stop() == 0


def test_of_two_nodes_one_is_killed_and_the_other_finishes(
    scene: Scene, sized: Sized, report: Report
) -> None:
    _kill_one_of_two(scene, sized(3_000, 12_000), report)


def test_on_a_cluster_of_two_nodes_one_is_killed_and_the_other_finishes(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    with RealCluster() as cluster:
        scene = make_scene(cluster.url)
        _kill_one_of_two(scene, sized(2_000, 8_000), report)
        scene.close()


def test_on_a_cluster_the_other_shards_work_on_while_one_is_down(
    make_scene: MakeScene, report: Report
) -> None:
    with RealCluster() as cluster:
        scene = make_scene(cluster.url)
        node = scene.add_node()
        node.wait_complete()
        home = {queue: cluster.owner(scene.queue(queue).calls.keys.meta) for queue in ("drill", "once")}
        if home["drill"] is home["once"]:
            pytest.fail("the two queues of the drill must lie on two shards")
        scene.publish("work", 50)
        scene.publish("once", 50)
        scene.wait_drained(queues=("drill", "once"))
        home["once"].pause()
        wait_until(lambda: node.logged("store_unavailable"), "the node has noticed", DEADLINE_S)
        began = time.monotonic()
        for _ in range(30):  # one after the other, so that each turn of the dispatcher counts
            done = scene.executed()
            scene.publish("work", 20)
            wait_until(
                lambda done=done: scene.executed() >= done + 20, "the other shard is worked off", DEADLINE_S
            )
        worked_off_s = time.monotonic() - began
        home["once"].resume()
        scene.publish("once", 50)
        scene.wait_drained(queues=("drill", "once"))

        account = scene.account(queues=("drill", "once"))
        restarts = sum(child["restarts"] for child in node.snapshot()["children"])
        report(f"{account.summary()}; restarts {restarts}; worked off in {worked_off_s:.1f} s")
        account.check()
        assert account.duplicates == 0
        assert restarts == 0, "nobody is taken for hung who waits for a shard"
        assert worked_off_s < DEADLINE_S
        assert node.stop() == 0
        scene.close()


def test_an_outage_longer_than_the_heartbeat_lets_no_node_rob_another(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    rounds = sized(1, 5)
    with RealServer(aof="always") as server:
        scene = make_scene(server.url)
        nodes = [scene.add_node() for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        for _ in range(rounds):
            scene.publish("hold", 4, 2.0)
            before = scene.executed()
            wait_until(lambda before=before: scene.executed() >= before + 4, "all workers are busy")
            server.kill()
            scene.ledger.note("R", 1)
            time.sleep(1.5)  # more than heartbeat_timeout_s: nobody could beat
            server.start()
            scene.wait_drained(DEADLINE_S)

        account = scene.account()
        report(account.summary())
        account.check()
        assert account.duplicates == 0
        assert [node.stop() for node in nodes] == [0, 0]
        scene.close()


def _kill_one_of_two(scene: Scene, count: int, report: Report) -> None:
    doomed, other = (scene.add_node(settings=HEARTBEAT) for _ in range(2))
    doomed.wait_complete()
    other.wait_complete()
    scene.publish("hold", 8, 0.5)
    scene.publish("work", count)
    scene.wait_executed(count // 10)
    at_kill = scene.counts()
    doomed.kill_supervisor()
    scene.wait_drained(DEADLINE_S)

    account = scene.account()
    report(f"{account.summary()}; at the kill {at_kill.leased} held, {at_kill.waiting} waiting")
    account.check()
    assert at_kill.waiting > 0
    assert at_kill.leased > 0
    assert account.ending_counts["reclaimed"] > 0
    assert other.stop() == 0


def _busy(scene: Scene) -> set[int]:
    """Processes that are in the middle of a long task."""
    account = Account(read_ledger(scene.ledger_folder))
    ended = {(run.message, run.attempt) for run in account.finished}
    runs = [run for run in account.executions if run.key.startswith("hold-")]
    return {run.pid for run in runs if (run.message, run.attempt) not in ended}


def _is_idle(scene: Scene) -> bool:
    before = scene.executed()
    time.sleep(0.5)
    return scene.executed() == before
