"""D3: kill -9 of the server under load. With `appendfsync always` nothing is lost; else it is measured."""

from __future__ import annotations

import time
from collections import Counter

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.node import DrillNode
from tests.drills.scene import Scene, resumes_within
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

RESUMES_WITHIN_S = 5.0
DEADLINE_S = 90.0
PER_S = 1_500.0
LAG_S = 0.01  # of a replica that takes over


def test_d3_a_server_that_writes_through_loses_nothing(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    kills, count = sized(3, 5), sized(3_000, 8_000)
    with RealServer(aof="always") as server:
        scene = make_scene(server.url)
        node = scene.add_node()
        node.wait_complete()
        publishing = scene.publish_beside("work", count, per_s=PER_S)
        waits = [_kill_server(server, scene) for _ in range(kills)]
        publishing.join()
        scene.wait_drained(DEADLINE_S)

        account = scene.account()
        report(f"{account.summary()}; resumed after at most {max(waits):.2f} s")
        account.check()
        assert account.server_kills == kills
        assert account.duplicates == 0  # nobody but the server was struck, and it forgot nothing
        assert _restarts(node) == 0
        assert node.stop() == 0
        scene.close()


def test_d3b_a_server_that_lags_a_second_behind_may_lose_but_keeps_order(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    kills, count = sized(2, 4), sized(1_500, 4_000)
    with RealServer(aof="everysec") as server:
        scene = make_scene(server.url)
        node = scene.add_node()
        node.wait_complete()
        publishing = scene.publish_beside("work", count, "x" * 8_192, per_s=PER_S)
        in_two_states = 0
        for _ in range(kills):
            _kill_server(server, scene)
            in_two_states += len(_ids_in_two_states(server, scene))
        publishing.join()
        scene.wait_drained(DEADLINE_S)

        account = scene.account()
        report(f"{account.summary()}; in two states {in_two_states}")
        account.check(may_lose=True)
        assert in_two_states == 0
        assert account.server_kills == kills
        assert node.stop() == 0
        scene.close()


def test_d3c_a_server_that_goes_back_in_time_acknowledges_nothing_unrun(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    """As after a failover to a replica that lagged behind, or a kill with writes not yet on disk."""
    rounds = sized(5, 20)
    with RealServer() as server:
        scene = make_scene(server.url)
        # Two, whose claims fall in another order the second time.
        nodes = [scene.add_node(settings={"heartbeat_timeout_s": 5.0}) for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        with server.client() as client:
            for _ in range(rounds):
                before = scene.executed()
                scene.publish("work", 400)
                resumes_within(scene, RESUMES_WITHIN_S, scene.executed, before)
                client.save()
                time.sleep(LAG_S)
                client.execute_command("DEBUG", "RELOAD", "NOSAVE")
        scene.wait_drained(DEADLINE_S)

        account = scene.account()
        strayed = sum(line["count"] for node in nodes for line in node.logged("deliveries_strayed"))
        report(f"{account.summary()}; went back {rounds} times, strayed {strayed}")
        # Only what the server forgot is run again, and nobody acknowledges with a fence of that lost time.
        assert not account.acked_twice
        assert not account.acked_unrun
        assert not account.lost
        assert not account.unsettled
        assert account.duplicates > 0
        assert [node.stop() for node in nodes] == [0, 0]
        scene.close()


def _kill_server(server: RealServer, scene: Scene) -> float:
    time.sleep(0.3)
    server.kill()
    scene.ledger.note("R", 1)
    time.sleep(0.2)
    server.start()
    return resumes_within(scene, RESUMES_WITHIN_S, scene.executed)


def _ids_in_two_states(server: RealServer, scene: Scene) -> list[bytes]:
    keys = scene.queue().calls.keys
    with server.client() as client:
        consumers = [name.decode() for name in client.zrange(keys.named("consumers"), 0, -1)]
        state = RawQueue(client, keys).read(*consumers)
    records = [*state.ready, *(record for held in state.held for record in held.values())]
    counts = Counter(record[25:].split(b" ")[0] for record in records)
    return [message for message, count in counts.items() if count > 1]


def _restarts(node: DrillNode) -> int:
    return sum(child["restarts"] for child in node.snapshot()["children"])
