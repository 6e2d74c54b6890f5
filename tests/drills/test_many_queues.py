"""Thousands of queues, far from the server: a killed node is noticed in time, idle queues cost little."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import hiredis
import pytest

from mqworker.model.names import DEFAULT_NAMESPACE
from mqworker.queues.work.keys import queues_key
from mqworker.settings import Settings
from mqworker.supervisor.liveness import LivenessLimits
from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.drill_app import QUEUE
from tests.drills.node import DrillNode
from tests.drills.scene import Scene
from tests.drills.wide_app import PREFIX, QUEUES_VARIABLE, build_wide_app
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient, packed

TIMEOUT_S = 5.0
HEARTBEAT = {"heartbeat_interval_s": 1.0, "heartbeat_timeout_s": TIMEOUT_S}
DELAY_S = 0.01
"""In each direction: 20 ms to the server and back."""
SILENT_AFTER_S = LivenessLimits().silent_after_ms / 1000
ACTORS = ("broker", "dispatcher", "heartbeat_reaper", "rate_limiter", "recovery_scanner")
WIDE_APP = "tests.drills.wide_app:app"
HELD = [f"{PREFIX}{number}" for number in range(4)]
"""Queues of the wide application in which a task runs for long."""


def test_a_killed_node_is_noticed_in_time_among_many_queues_far_away(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    queues, count, watched_s = sized(500, 10_000), sized(3, 10), sized(10, 60)
    with RealServer() as server, FaultProxy(server.port, delay_s=DELAY_S) as proxy:
        scene = make_scene(server.url)
        _make_queues(server, queues)
        nodes = [scene.add_node(url=proxy.url, workers=1, settings=HEARTBEAT) for _ in range(count)]
        for node in nodes:
            node.wait_complete()
        doomed = nodes[0]
        before, began = _cpu_s(doomed), time.monotonic()
        time.sleep(watched_s)  # idle, and looked at
        idle_percent = 100 * (_cpu_s(doomed) - before) / (time.monotonic() - began)

        scene.publish("hold", 4 * count, 120.0)
        wait_until(lambda: _held_by(scene, doomed) > 0, "the node holds something", 30.0)
        held = _held_by(scene, doomed)
        name = doomed.snapshot()["node"]
        doomed.kill_supervisor()
        killed_at = time.monotonic()
        wait_until(lambda: _held_under(scene, name) == 0, "what it held is back", 6 * TIMEOUT_S)
        back_s = time.monotonic() - killed_at

        restarts = _restarts(nodes[1:])
        report(
            f"{queues} queues, {count} nodes: {held} held, back after {back_s:.1f} s; restarts {restarts}; "
            f"an idle node took {idle_percent:.2f} % of a core"
        )
        assert back_s <= 2 * TIMEOUT_S
        assert not restarts
        assert idle_percent < sized(4, 2)  # of CPU time, which a busy machine hardly changes
        scene.close()


def _make_queues(server: RealServer, count: int) -> None:
    """As many names as a careless client makes; the meta of a queue exists from its first message on."""
    names = [f"made-{number}" for number in range(count)]
    with server.client() as client:
        client.sadd(queues_key(DEFAULT_NAMESPACE), *names)


def _restarts(nodes: Sequence[DrillNode]) -> dict[str, str]:
    """Who was restarted, and how it had ended."""
    return {
        f"{node.folder.name} {child['name']}": child["last_exit"]
        for node in nodes
        for child in node.snapshot()["children"]
        if child["restarts"]
    }


def _held_by(scene: Scene, node: DrillNode) -> int:
    return _held_under(scene, node.snapshot().get("node", "?"))


def _held_in(scene: Scene, node: DrillNode) -> int:
    name = node.snapshot().get("node", "?")
    return sum(_held_under(scene, name, queue) for queue in HELD)


def _held_under(scene: Scene, node: str, name: str = QUEUE) -> int:
    queue = scene.queue(name)
    keys = queue.calls.keys
    return sum(
        int(str(queue.store.send([("HLEN", keys.held(each))], keys.meta)[0]))
        for each in queue.consumers()
        if each.startswith(node)
    )


def _cpu_s(node: DrillNode) -> float:
    ticks = 0
    for pid in node.descendants():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def test_an_application_with_many_queues_far_away_works_and_its_dead_are_noticed(
    make_scene: MakeScene, sized: Sized, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = sized(135, 300)
    monkeypatch.setenv(QUEUES_VARIABLE, str(queues))
    with RealServer() as server, FaultProxy(server.port, delay_s=DELAY_S) as proxy:
        scene = make_scene(server.url)
        app, tasks = build_wide_app(queues, Settings(redis_url=server.url))
        nodes = [scene.add_node(url=proxy.url, app=WIDE_APP, settings=HEARTBEAT) for _ in range(2)]
        for node in nodes:
            node.wait_complete()
        doomed, other = nodes
        for number, task in enumerate(tasks):
            task.enqueue(f"wide-{number}", 120.0 if number < len(HELD) else 0.0)
        wait_until(lambda: _held_in(scene, doomed) > 0, "the node holds something", 30.0)
        held, name = _held_in(scene, doomed), doomed.snapshot()["node"]
        doomed.kill_supervisor()
        killed_at = time.monotonic()
        wait_until(
            lambda: sum(_held_under(scene, name, queue) for queue in HELD) == 0,
            "what it held is back",
            6 * TIMEOUT_S,
        )
        back_s = time.monotonic() - killed_at
        time.sleep(2 * TIMEOUT_S)  # long enough for somebody to be taken for dead who is not
        restarts = _restarts([other])
        report(f"{queues} queues: {held} held, back after {back_s:.1f} s; restarts {restarts}")
        assert back_s <= 2 * TIMEOUT_S
        assert not restarts
        assert all(line["consumer"].startswith(name) for line in other.logged("consumer_reaped"))
        app.close()
        scene.close()


def test_thousands_of_new_names_from_one_client_do_not_halt_a_node(sized: Sized, report: Report) -> None:
    names = sized(3_000, 10_000)
    settings = {"MQWORKER_GATEWAYS": "redismq=127.0.0.1:0"}
    with RealServer() as server, FaultProxy(server.port, delay_s=DELAY_S) as proxy:
        with RealNode(proxy.url, settings=settings) as node:
            port = int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])
            client = RespClient(port)
            for start in range(0, names, 100):
                some = range(start, start + 100)
                client.socket.sendall(b"".join(packed("MQ.PUSH", f"new-{name}", "x") for name in some))
                for _ in some:
                    assert not isinstance(client.hear(), hiredis.ReplyError)
            client.close()
            wait_until(lambda: node.facts("broker")["queues"] >= names, "the broker knows them all", 30.0)
            time.sleep(2 * SILENT_AFTER_S)  # so long after, an actor that hangs was aborted
            restarts = {each: node.child(each)["restarts"] for each in ACTORS}
            assert not any(restarts.values()), f"{restarts}: {node.log()[-2_000:]}"
        with RealNode(proxy.url, settings=settings) as again:
            wait_until(lambda: again.facts("broker")["queues"] >= names, "a new one knows them, too", 30.0)
            time.sleep(2 * SILENT_AFTER_S)
            restarts = {each: again.child(each)["restarts"] for each in ACTORS}
            assert not any(restarts.values()), f"{restarts}: {again.log()[-2_000:]}"
    report(f"{names} names, before and after a restart: {restarts}")
