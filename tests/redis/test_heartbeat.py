"""Beats on real servers: one per server, not waited for, and seen by everybody else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from mqworker.model.clock import SystemClock
from mqworker.queues.work.heartbeat import Heartbeat, Reading
from mqworker.queues.work.keys import beats_keys
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

Beating = Callable[[str], Heartbeat]

_now_ms = SystemClock().monotonic_ms


@pytest.fixture
def beating() -> Iterator[Beating]:
    """Heartbeats by the address of their server."""
    opened: list[Heartbeat] = []

    def begin(url: str) -> Heartbeat:
        connection = open_connection(
            parse_address(url), connect_timeout_s=1.0, read_timeout_s=1.0, client_name=None
        )
        opened.append(Heartbeat(connection, "mqw", timeout_ms=5_000))
        return opened[-1]

    yield begin
    for heartbeat in opened:
        heartbeat.close()


def _readings(heartbeat: Heartbeat, *consumers: str) -> list[Reading]:
    """Beat until somebody answers."""
    found: list[Reading] = []

    def is_answered() -> bool:
        heartbeat.send(consumers, _now_ms())
        time.sleep(0.02)
        found.extend(heartbeat.receive(_now_ms()))
        return bool(found)

    wait_until(is_answered, "an answer to a beat")
    return found


def test_one_hears_the_beats_of_another(beating: Beating) -> None:
    with RealServer() as server:
        _readings(beating(server.url), "north")

        heard = _readings(beating(server.url), "south")[-1]

    assert set(heard.beats) == {"north", "south"}


def test_a_single_server_is_told_once_however_many_queues_there_are(beating: Beating) -> None:
    with RealServer() as server:
        _readings(beating(server.url), "north")

        with server.client() as client:
            keys = client.keys("mqw:*")

    assert keys == [beats_keys("mqw")[0].encode()]


def test_a_beat_is_not_kept_from_going_out_by_one_that_is_not_answered(beating: Beating) -> None:
    with RealServer() as server, FaultProxy(server.port) as proxy:
        late, other = beating(proxy.url), beating(server.url)
        _readings(late, "late")
        proxy.delay_s = 1.0
        changes: list[bytes] = []
        ends_at = time.monotonic() + 3.0
        while time.monotonic() < ends_at:
            late.send(["late"], _now_ms())
            late.receive(_now_ms())
            beat = _readings(other, "other")[-1].beats["late"]
            if beat not in changes:
                changes.append(beat)
            time.sleep(0.1)

    assert len(changes) > 10  # two seconds' worth: the rest is under way


def test_after_a_restart_of_the_server_beats_go_on(beating: Beating) -> None:
    with RealServer(aof="always") as server:
        heartbeat = beating(server.url)
        _readings(heartbeat, "north")
        server.kill()
        for _ in range(5):
            heartbeat.send(["north"], _now_ms())
            heartbeat.receive(_now_ms())
            time.sleep(0.05)
        server.start()

        assert "north" in _readings(heartbeat, "north")[-1].beats


def test_a_foreign_key_in_the_place_of_the_beats_is_said(beating: Beating) -> None:
    with RealServer() as server:
        with server.client() as client:
            client.set(beats_keys("mqw")[0], "foreign")
        heartbeat = beating(server.url)

        def is_said() -> bool:
            heartbeat.send(["north"], _now_ms())
            time.sleep(0.02)
            assert heartbeat.receive(_now_ms()) == []
            return "WRONGTYPE" in heartbeat.problem

        wait_until(is_said, "the problem is told")


def test_on_a_cluster_every_primary_hears_and_one_that_hangs_holds_up_no_other(beating: Beating) -> None:
    with RealCluster() as cluster:
        heartbeat = beating(cluster.url)
        heard: set[str] = set()

        def is_heard_everywhere() -> bool:
            heard.update(reading.key for reading in _readings(heartbeat, "north"))
            return heard == set(beats_keys("mqw"))

        wait_until(is_heard_everywhere, "all primaries answered")
        hanging = cluster.servers[1]
        hanging.pause()
        try:
            began = time.monotonic()
            for _ in range(20):
                heartbeat.send(["north"], _now_ms())
                heartbeat.receive(_now_ms())
            took_s = time.monotonic() - began
            others = {reading.key for reading in _readings(heartbeat, "north")}
        finally:
            hanging.resume()

    assert {cluster.owner(key).port for key in beats_keys("mqw")} == {each.port for each in cluster.servers}
    assert took_s < 1.0
    assert others
    assert not {key for key in others if cluster.owner(key) is hanging}


def test_on_a_cluster_a_slot_that_moved_is_followed(beating: Beating) -> None:
    with RealCluster() as cluster:
        heartbeat = beating(cluster.url)
        key = beats_keys("mqw")[0]
        source, target = cluster.owner(key), cluster.servers[2]
        wait_until(
            lambda: any(reading.key == key for reading in _readings(heartbeat, "north")), "the key is known"
        )
        cluster.begin_move(key, source, target)
        cluster.move_key(key, source, target)
        cluster.end_move(key, source, target)
        with target.client() as client:
            before = client.zscore(key, "north 5000")

            def has_beat() -> bool:
                _readings(heartbeat, "north")
                return bool(client.zscore(key, "north 5000") != before)

            wait_until(has_beat, "beats go to the new owner")


def test_a_beat_tells_how_long_its_consumer_wants_to_be_waited_for(beating: Beating) -> None:
    with RealServer() as server:
        heard = _readings(beating(server.url), "north")[-1]

    assert heard.timeout_ms == {"north": 5_000}


def test_every_beat_differs_from_the_one_before_even_when_the_clock_stands_still(beating: Beating) -> None:
    with RealServer() as server, server.client() as client:
        heartbeat, key = beating(server.url), beats_keys("mqw")[0]
        ahead = int(time.time() * 1000) + 3_600_000
        client.zadd(key, {"north 5000": ahead})  # noted before the clock went back

        first = _readings(heartbeat, "north")[0].beats["north"]

        assert int(first) == ahead + 1
