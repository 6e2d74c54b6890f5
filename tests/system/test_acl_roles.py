"""A whole system under the users of `mqworker acl`: everything works, and the server refuses nothing."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from mqworker import App, Rate, chain, group
from mqworker.cli.main import mqworker
from mqworker.events import open_event_streams
from mqworker.model.acl import ROLES, acl_file, rules_of
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer
from tests.support.resp_client import RespClient

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0
APP = """
import asyncio
import time

from mqworker import App, Context, Rate

app = App("shop")


@app.task
def double(number: int) -> int:
    return 2 * number


@app.task(rate=Rate("1000/s"), retry=0)
def fail(number: int) -> None:
    raise ValueError(number)


@app.task
def slow(ctx: Context) -> None:
    ctx.progress(1, 10)
    time.sleep(60)


@app.schedule(every=0.5)
def tick() -> None: ...


@app.subscribe("orders.placed")
def invoice(order: int) -> None: ...
"""
COMMANDS = (
    *("status", "doctor", "queue list", "queue show default", "queue pause default", "queue resume default"),
    *(
        "job list",
        "dead list",
        "dead causes",
        "audit",
        "stats",
        "schedule list",
        "schedule list --prefix shop/",
        "schedule pause shop/shop.tick",
        "schedule history shop/shop.tick",
        "workflow list",
        "strike list",
    ),
)


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """A server with a user for each role, in the default namespace; and a tenant of `acme`."""
    with RealServer() as running, running.client() as admin:
        for role in ROLES:
            namespace = "acme" if role == "tenant" else "mqw"
            typed = CliRunner().invoke(mqworker, ["acl", "--role", role, "--namespace", namespace])
            line = typed.output.splitlines()[-1].replace("$PASSWORD", role)
            admin.execute_command(*shlex.split(line)[1:])
        yield running


def url_of(server: RealServer, role: str) -> str:
    return f"redis://mqworker-{role}:{role}@127.0.0.1:{server.port}"


def refusals(server: RealServer) -> list[object]:
    with server.client() as admin:
        found: list[object] = admin.execute_command("ACL", "LOG")
    return found


def forget_refusals(server: RealServer) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "LOG", "RESET")


def live_through_a_day(producer: App, node_url: str, console_url: str, variables: dict[str, str]) -> None:
    """What systems do: tasks, workflows, limits, events, schedules, cancelling, killing, looking, mending."""
    double = producer.task(name="shop.double")(lambda number: number)
    fail = producer.task(name="shop.fail", rate=Rate("1000/s"), retry=0)(lambda number: number)
    slow = producer.task(name="shop.slow")(lambda: None)
    node = RealNode(node_url, "shop:app", settings={"MQWORKER_WORKERS": "2", **variables})
    (node.directory / "shop.py").write_text(APP)
    with node:
        assert chain(double.s(2), double.s()).enqueue().result(timeout=DEADLINE_S) == 8
        assert group(double.s(each) for each in range(20)).enqueue().result(timeout=DEADLINE_S)[3] == 6
        assert [job.result(timeout=DEADLINE_S) for job in double.enqueue_many([(1,), (2,)])] == [2, 4]
        failed, running = fail.enqueue(7), slow.enqueue()
        wait_until(lambda: failed.status() == "failed", "a dead letter", DEADLINE_S)
        assert double.using(delay=60).enqueue(1).cancel()
        wait_until(lambda: running.status() == "running", "it runs", DEADLINE_S)
        assert running.cancel(kill=True, timeout=DEADLINE_S)
        producer.publish("orders.placed", 7)
        producer.schedules.put("acme/often", double.s(1), every=0.5)
        wait_until(lambda: producer.schedules.history("acme/often"), "it is fired", DEADLINE_S)
        assert producer.schedules.pause("acme/often")
        assert producer.schedules.resume("acme/often")
        assert producer.schedules.run_now("acme/often").result(timeout=DEADLINE_S) == 2
        assert producer.schedules.delete("acme/often")
        queue = producer.work_queue("default")
        wait_until(lambda: queue.counts().totals.get("succeeded", 0) >= 28, "ticks", DEADLINE_S)
        node.kill("dispatcher")
        assert double.enqueue(4).result(timeout=DEADLINE_S) == 8
        for words in (
            *COMMANDS,
            f"job show {failed.id}",
            f"job explain {failed.id}",
            f"dead retry {failed.id}",
        ):
            typed = run_command(words, console_url, variables)
            assert typed.returncode in {0, 1}, (words, typed.stdout, typed.stderr)
            assert "may not" not in typed.stdout + typed.stderr
            assert "permit" not in typed.stdout + typed.stderr, (words, typed.stdout)


def run_command(words: str, url: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mqworker", *words.split()],
        env={**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": url, **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def test_a_system_needs_no_more_than_its_roles(server: RealServer) -> None:
    forget_refusals(server)
    app = App("shop", settings=Settings(redis_url=url_of(server, "producer")))

    live_through_a_day(app, url_of(server, "worker"), url_of(server, "console"), {})
    app.close()
    with open_event_streams(Settings(redis_url=url_of(server, "archiver"))) as streams:
        assert "default" in streams.queues()
        tail = streams.tail("default")
        streams.hold("default", 1_000)
        assert list(streams.blocks("default", "0-0", tail.newest))
        streams.trim("default", tail.newest)
        streams.hold("default", None)

    assert refusals(server) == []


def test_a_tenant_lives_in_its_namespace_beside_others(server: RealServer) -> None:
    forget_refusals(server)
    url = url_of(server, "tenant")
    variables = {"MQWORKER_NAMESPACE": "acme", "MQWORKER_GOMQ_PREFIX": "acme:gomq:"}
    app = App("shop", settings=Settings(redis_url=url, namespace="acme", gomq_prefix="acme:gomq:"))

    live_through_a_day(app, url, url, variables)
    app.close()

    assert refusals(server) == []


def test_a_tenant_has_a_gateway_and_touches_no_bare_name(server: RealServer) -> None:
    forget_refusals(server)
    variables = {
        "MQWORKER_NAMESPACE": "acme",
        "MQWORKER_GOMQ_PREFIX": "acme:gomq:",
        "MQWORKER_GATEWAYS": "redismq=127.0.0.1:0",
    }
    with RealNode(url_of(server, "tenant"), settings=variables) as node:
        port = int(node.facts("gateway:redismq")["listens"].rpartition(":")[2])
        with RespClient(port) as client:
            pushed = client.say("MQ.PUSH", "jobs:mail", "x")
            popped = client.say("MQ.POP", 1, "jobs:mail")
            acked = client.say("MQ.ACK", "jobs:mail", *pushed)

    assert popped == [[pushed[0], b"x"]]
    assert acked == pushed
    assert refusals(server) == []


@pytest.mark.parametrize(
    ("role", "command"),
    [
        ("producer", ("LPOP", "mqw:{default}:ready")),
        ("producer", ("ZPOPMIN", "mqw:{default}:urgent")),
        ("producer", ("XTRIM", "mqw:{default}:events", "MAXLEN", "0")),
        ("archiver", ("RPUSH", "mqw:{default}:ready", "x")),
        ("tenant", ("GET", "mqw:x")),
        ("tenant", ("SMEMBERS", "SUBSCRIBED_KEYS")),
        ("tenant", ("SPUBLISH", "mqw:{default}:meta", "ready")),
        ("tenant", ("CLIENT", "KILL", "ID", "1")),
        *((role, ("SCAN", "0")) for role in ROLES),
        *((role, ("FLUSHALL",)) for role in ROLES),
        *((role, ("CONFIG", "GET", "*")) for role in ROLES),
        *((role, ("CLIENT", "LIST")) for role in ROLES),
        *((role, ("CLIENT", "TRACKING", "ON", "BCAST")) for role in ROLES),
        *((role, ("FUNCTION", "LIST")) for role in ROLES),
        *((role, ("SCRIPT", "FLUSH")) for role in ROLES),
        *((role, ("SET", "theirs", "1")) for role in ROLES),
    ],
    ids=str,
)
def test_what_a_role_may_not(server: RealServer, role: str, command: tuple[str, ...]) -> None:
    with (
        redis.Redis.from_url(url_of(server, role)) as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command)


def test_a_producer_cannot_claim_however_it_calls_the_script(server: RealServer) -> None:
    app = App("shop", settings=Settings(redis_url=url_of(server, "producer")))
    app.task(name="t", queue="unclaimed")(lambda: None).enqueue()
    with pytest.raises(Exception, match=r"NOPERM|permit|permission"):
        app.work_queue("unclaimed").claim(lease_ms=1_000)
    assert app.work_queue("unclaimed").counts().ready == 1
    app.close()


def test_without_info_status_says_so_and_a_node_does_not_start(server: RealServer) -> None:
    with server.client() as admin:
        admin.execute_command("ACL", "SETUSER", "blind", *rules_of("worker"), "-info", "on", ">blind")
    url = f"redis://blind:blind@127.0.0.1:{server.port}"

    status = run_command("status --json", url, {})
    node = run_command("run", url, {})

    assert status.returncode != 3, status.stdout
    assert "may not ask INFO" in status.stdout
    assert node.returncode == 78, node.stderr
    assert "may not ask INFO" in node.stdout + node.stderr


def test_the_file_of_users_is_what_the_command_prints(server: RealServer, tmp_path: Path) -> None:
    written = (ROOT / "deploy" / "users.acl").read_text()

    assert written == acl_file(list(ROLES))
    with server.client() as admin:
        for line in written.splitlines():
            _, name, *rules = line.split()
            admin.execute_command("ACL", "SETUSER", f"file-{name}", *rules)
    assert tmp_path.exists()
