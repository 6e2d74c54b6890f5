"""D4: everything that happens to a connection. Work goes on within seconds, nothing is lost, nobody dies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from tests.drills.conftest import MakeScene, Report, Sized
from tests.drills.scene import resumes_within
from tests.support.fault_proxy import FaultProxy, Mode
from tests.support.real_server import RealServer, free_port

RESUMES_WITHIN_S = 15.0
"""A call's time-out, a pause and another try take 3 s at most; the rest is for a busy machine."""
DEADLINE_S = 90.0
PER_S = 300.0

Fault = Callable[[RealServer, FaultProxy, redis.Redis, float], None]


def test_d4_work_goes_on_after_whatever_happens_to_connections(
    make_scene: MakeScene, sized: Sized, report: Report
) -> None:
    faults, seconds = FAULTS, sized(5, 30) / 10
    with RealServer(aof="no") as server, FaultProxy(server.port) as proxy:
        scene = make_scene(server.url)
        node = scene.add_node(url=proxy.url)
        node.wait_complete()
        scene.publish("work", 200)
        scene.wait_executed(200)
        slowest, slowest_name = 0.0, ""
        for name, fault in faults.items():
            publishing = scene.publish_beside("work", 120, per_s=PER_S)
            with server.client() as client:
                time.sleep(0.1)
                fault(server, proxy, client, seconds)
            before = scene.executed()
            scene.publish("work", 50)
            try:
                waited = resumes_within(scene, RESUMES_WITHIN_S, scene.executed, before)
            except AssertionError as error:
                raise AssertionError(f"after {name}: {error}") from None
            if waited > slowest:
                slowest, slowest_name = waited, name
            publishing.join()
        scene.wait_drained(DEADLINE_S)

        account = scene.account()
        restarts = {child["name"]: child["restarts"] for child in node.snapshot()["children"]}
        report(
            f"{len(faults)} faults ({', '.join(faults)}); {account.summary()}; resumed after at most "
            f"{slowest:.2f} s ({slowest_name}); restarts {sum(restarts.values())}"
        )
        account.check()
        assert max(restarts.values()) == 0, restarts
        assert node.stop() == 0
        scene.close()


def _kill_normal(_: RealServer, _proxy: FaultProxy, client: redis.Redis, _seconds: float) -> None:
    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def _kill_pubsub(_: RealServer, _proxy: FaultProxy, client: redis.Redis, _seconds: float) -> None:
    client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


def _flush_scripts(_: RealServer, _proxy: FaultProxy, client: redis.Redis, _seconds: float) -> None:
    client.execute_command("SCRIPT", "FLUSH", "SYNC")


def _sleep(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    client.execute_command("DEBUG", "SLEEP", seconds)


def _stop(server: RealServer, _proxy: FaultProxy, _client: redis.Redis, seconds: float) -> None:
    server.pause()
    time.sleep(seconds)
    server.resume()


def _pause_clients(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    client.execute_command("CLIENT", "PAUSE", int(seconds * 1000), "ALL")
    time.sleep(seconds)


def _read_only(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    client.execute_command("REPLICAOF", "127.0.0.1", free_port())
    time.sleep(seconds)
    client.execute_command("REPLICAOF", "NO", "ONE")


def _loading(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    keys = client.dbsize()
    client.config_set("key-load-delay", int(seconds * 1_000_000 / keys))
    client.config_set("loading-process-events-interval-bytes", 1_024)
    with contextlib.suppress(redis.RedisError):
        client.execute_command("DEBUG", "RELOAD")
    client.config_set("key-load-delay", 0)


def _full_of_clients(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    with _config(client, "maxclients", 1):
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        time.sleep(seconds)


def _password(_: RealServer, _proxy: FaultProxy, client: redis.Redis, seconds: float) -> None:
    with _config(client, "requirepass", "changed"):
        client.execute_command("AUTH", "changed")
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(seconds)


def _reset(_: RealServer, proxy: FaultProxy, _client: redis.Redis, _seconds: float) -> None:
    for _ in range(5):
        proxy.reset_all()
        time.sleep(0.05)


def _blackhole(_: RealServer, proxy: FaultProxy, _client: redis.Redis, seconds: float) -> None:
    with _mode(proxy, Mode.BLACKHOLE):
        time.sleep(seconds)


def _slices(_: RealServer, proxy: FaultProxy, _client: redis.Redis, seconds: float) -> None:
    with _mode(proxy, Mode.SLICES):
        time.sleep(seconds)


def _half_close(_: RealServer, proxy: FaultProxy, _client: redis.Redis, seconds: float) -> None:
    with _mode(proxy, Mode.HALF_CLOSED):
        time.sleep(seconds)


@contextmanager
def _mode(proxy: FaultProxy, mode: Mode) -> Iterator[None]:
    proxy.mode = mode
    yield
    proxy.mode = Mode.PASS


@contextmanager
def _config(client: redis.Redis, name: str, value: object) -> Iterator[None]:
    before = client.config_get(name)[name]
    client.config_set(name, value)
    yield
    client.config_set(name, before)


FAULTS: dict[str, Fault] = {
    "CLIENT KILL normal": _kill_normal,
    "CLIENT KILL pubsub": _kill_pubsub,
    "SCRIPT FLUSH": _flush_scripts,
    "DEBUG SLEEP": _sleep,
    "SIGSTOP": _stop,
    "CLIENT PAUSE": _pause_clients,
    "READONLY": _read_only,
    "LOADING": _loading,
    "maxclients": _full_of_clients,
    "password": _password,
    "reset": _reset,
    "black hole": _blackhole,
    "slices of 1 B": _slices,
    "half-close": _half_close,
}
