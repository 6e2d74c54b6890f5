"""Who is alive: nobody who beats is ever reaped, however new the queue, however late the beat."""

from __future__ import annotations

import os
import signal
import time

import redis

from mqworker.model.names import DEFAULT_NAMESPACE
from mqworker.queues.work.keys import beats_keys
from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.drill_app import ONCE_QUEUE
from tests.drills.scene import Scene
from tests.support.fault_proxy import FaultProxy
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

TIMEOUT_S = 1.0
HEARTBEAT = {"heartbeat_interval_s": 0.2, "heartbeat_timeout_s": TIMEOUT_S}


def test_the_first_tasks_of_a_fresh_server_run_once(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    rounds, runs = sized(2, 10), 0
    for _ in range(rounds):
        with RealServer() as server:
            scene = make_scene(server.url)
            nodes = [scene.add_node(settings=HEARTBEAT) for _ in range(3)]
            for node in nodes:
                node.wait_complete()
            time.sleep(1.6 * TIMEOUT_S)  # nobody ever used the queue; they wait at it, as nodes do
            scene.publish("hold", 12, 1.5 * TIMEOUT_S)
            scene.wait_drained()
            account = scene.account()
            account.check()
            assert account.duplicates == 0, account.summary()
            assert not any(node.logged("consumer_reaped") for node in nodes)
            runs += len(account.executions)
            scene.close()
    report(f"{runs} runs of {12 * rounds} tasks on {rounds} fresh servers")


def test_a_node_whose_beats_come_late_keeps_what_it_holds(
    server: RealServer, make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    settings = {"heartbeat_interval_s": 0.5, "heartbeat_timeout_s": 3.0}
    # At the onset a beat is late by the interval and by this, which leaves half a second for a busy machine.
    late_s, rounds = 2.0, sized(1, 4)
    with FaultProxy(server.port) as proxy:
        scene = make_scene(server.url)
        far = scene.add_node(url=proxy.url, settings=settings)
        far.wait_complete()
        near = scene.add_node(settings={**settings, "queues": ONCE_QUEUE})
        near.wait_complete()
        for _ in range(rounds):
            before = scene.executed()
            scene.publish("hold", 2, 12.0)
            scene.wait_executed(before + 2)
            proxy.delay_s = late_s  # in each direction: no answer comes within any patience
            time.sleep(8.0)
            proxy.delay_s = 0.0
            scene.wait_drained()

        account = scene.account()
        reaped = len(near.logged("consumer_reaped"))
        report(f"{account.summary()}; beats {late_s} s late in {rounds} rounds, reaped {reaped}")
        account.check()
        assert reaped == 0
        assert account.duplicates == 0
        scene.close()


def test_beats_go_out_while_all_other_calls_of_the_node_wait(
    server: RealServer, make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    rounds, late_s = sized(2, 10), 0.0
    with FaultProxy(server.port) as proxy, server.client() as client:
        scene = make_scene(server.url)
        node = scene.add_node(
            url=proxy.url, settings={"heartbeat_interval_s": 0.2, "heartbeat_timeout_s": 12.0}
        )
        node.wait_complete()
        for _ in range(rounds):
            proxy.hold(lambda request: b"node_beat" not in request)
            late_s = max(late_s, _longest_gap_s(client, 5.0))
            proxy.hold(lambda _: False)
            scene.publish("work", 1)
            scene.wait_drained()
        report(
            f"nothing but beats answered for 5 s, {rounds} times: a beat came every {late_s:.2f} s or sooner"
        )
        assert late_s < 1.5  # calls of the reaper wait for 2 s
        assert not node.logged("child_exited")
        scene.close()


def test_actors_that_wait_for_a_slow_server_are_not_taken_for_hung(
    server: RealServer, make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    slow_s, watched_s = 0.7, sized(15, 60)
    with FaultProxy(server.port) as proxy:
        scene = make_scene(server.url)
        node = scene.add_node(
            url=proxy.url, settings={"heartbeat_interval_s": 0.5, "heartbeat_timeout_s": 12.0}
        )
        node.wait_complete()
        proxy.delay_s = slow_s  # each way; a turn of the broker has half a dozen round trips
        scene.publish("work", 5)
        time.sleep(watched_s)
        proxy.delay_s = 0.0
        scene.wait_drained()
        silent = [line["child"] for line in node.logged("child_silent")]
        report(f"{2 * slow_s:.1f} s for each round trip, for {watched_s} s; taken for hung: {silent}")
        assert silent == []
        scene.close()


def _longest_gap_s(client: redis.Redis, seconds: float) -> float:
    """The longest time between two beats, as the server saw them come."""
    key = beats_keys(DEFAULT_NAMESPACE)[0]
    began = heard_at = time.monotonic()
    beat, longest_s = client.zrange(key, 0, -1, withscores=True), 0.0
    while (now := time.monotonic()) < began + seconds:
        before, beat = beat, client.zrange(key, 0, -1, withscores=True)
        longest_s = max(longest_s, now - heard_at)
        if beat != before:
            heard_at = now
        time.sleep(0.02)
    return longest_s


def test_a_reaper_that_was_stopped_robs_nobody_when_it_goes_on(
    scene: Scene, sized: Sized, report: Report
) -> None:
    rounds = sized(3, 15)
    holder = scene.add_node(settings=HEARTBEAT)
    other = scene.add_node(settings={**HEARTBEAT, "queues": ONCE_QUEUE})
    holder.wait_complete()
    other.wait_complete()
    for number in range(rounds):
        before = scene.executed()
        scene.publish("hold", 2, 3.0)
        scene.wait_executed(before + 2)
        reaper = other.live_children()["heartbeat_reaper"]
        os.kill(reaper, signal.SIGSTOP)
        time.sleep(1.2 * TIMEOUT_S + 0.037 * number)  # at ever another moment of its round
        os.kill(reaper, signal.SIGCONT)
        scene.wait_drained()

    account = scene.account()
    report(f"{account.summary()}; stopped {rounds} times")
    account.check()
    assert not other.logged("consumer_reaped")
    assert account.duplicates == 0


def test_on_a_cluster_nobody_is_reaped_because_a_shard_is_away(make_scene: MakeScene, report: Report) -> None:
    settings = {"heartbeat_interval_s": 0.5, "heartbeat_timeout_s": 3.0}
    with RealCluster() as cluster:
        scene = make_scene(cluster.url)
        nodes = [scene.add_node(settings=settings) for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        for shard in cluster.servers:
            before = scene.executed()
            scene.publish("hold", 4, 9.0)
            scene.wait_executed(before + 4)
            shard.pause()
            time.sleep(6.0)
            shard.resume()
            scene.wait_drained()

        account = scene.account()
        report(f"{account.summary()}; each of {len(cluster.servers)} shards away for two time-outs")
        account.check()
        assert not any(node.logged("consumer_reaped") for node in nodes)
        assert account.duplicates == 0
        scene.close()
