"""`mqworker status` against a real server: what it shows, in which shape, and how it exits."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mqworker.model.settlement import Ack
from mqworker.queues.work.keys import beats_keys
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.throughput import sample
from tests.support.command_line import CONSUMER, NODE, CommandLine, a_child
from tests.support.messages import open_store, some_messages
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer


def test_healthy_exits_with_0_and_shows_node_workers_and_queues(line: CommandLine) -> None:
    line.add_node("mail")
    line.queue("mail").enqueue(*some_messages(3))

    result = line.type("status")

    assert result.exit_code == 0
    assert result.output.startswith("healthy\n")
    assert f"node {NODE}  shop:app, pid 4711" in result.output
    assert "worker:1  live       3  1,234" in result.output
    assert "since the queues were made: 3 enqueued" in result.output


def test_degraded_exits_with_1_and_says_why(line: CommandLine) -> None:
    line.add_node("mail", children=[a_child("broker", state="waiting", restarts=4, last_exit="SIGKILL")])

    result = line.type("status")

    assert result.exit_code == 1
    assert "degraded: broker of node web-1 does not stay up, 4 restarts: SIGKILL" in result.output


def test_without_nodes_it_is_down_and_exits_with_2(line: CommandLine) -> None:
    line.queue("mail").enqueue(*some_messages(3))

    result = line.type("status")

    assert result.exit_code == 2
    assert result.output.startswith("down: no node beats")


def test_without_a_server_it_exits_with_3(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mqworker", "status", "-r", f"unix://{tmp_path}/none.sock"]

    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (result.returncode, result.stderr) == (3, "")
    assert result.stdout.startswith("no Redis: Redis at")


def test_without_any_server_in_the_directory_it_says_how_to_start_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mqworker", "status", "--json"]

    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert result.returncode == 3
    found = json.loads(result.stdout)
    assert found["verdict"]["health"] == "no_redis"
    assert "start `mqworker run` or `mqworker redis`" in found["verdict"]["reasons"][0]
    assert not (tmp_path / ".mqworker").exists()


def test_of_very_many_queues_those_that_hold_nothing_are_counted(
    line: CommandLine, server: RealServer
) -> None:
    line.add_node("mail")
    line.queue("mail").enqueue(*some_messages(3))
    with server.client() as client:
        client.sadd("mqw:queues", *(f"idle-{number}" for number in range(1_000)))
        client.hset("mqw:{idle-7}:meta", mapping={"enqueued": "40", "succeeded": "40"})
        client.hset("mqw:{idle-8}:meta", mapping={"paused": "1"})

    screen = line.type("status").output
    found = json.loads(line.type("status", "--json").output)

    assert "and 999 queues that hold nothing and nobody consumes" in screen
    assert len(screen.splitlines()) < 40
    assert [queue["name"] for queue in found["queues"]] == ["idle-8", "mail"]
    assert found["idle_queues"] == 999
    assert (found["totals"]["enqueued"], found["totals"]["succeeded"]) == (43, 40)


def test_a_foreign_key_among_very_many_queues_hides_none(line: CommandLine, server: RealServer) -> None:
    line.add_node("mail")
    with server.client() as client:
        client.sadd("mqw:queues", *(f"idle-{number}" for number in range(300)))
        client.set("mqw:{idle-7}:meta", "foreign")

    found = json.loads(line.type("status", "--json").output)

    broken = [queue["name"] for queue in found["queues"] if queue["trouble"]]
    assert broken == ["idle-7"]
    assert len(found["queues"]) + found["idle_queues"] == 300


def test_a_consumer_is_heard_by_its_beat_however_long_it_claimed_nothing(
    line: CommandLine, server: RealServer
) -> None:
    line.queue("mail").enqueue(*some_messages(1))
    line.queue("mail").claim(1, consumer=CONSUMER)
    with server.client() as client:
        now_s, _ = client.time()
        client.zadd("mqw:{mail}:consumers", {CONSUMER: (now_s - 3_600) * 1000})
        client.zadd(beats_keys("mqw")[0], {f"{CONSUMER} 5000": now_s * 1000})

    found = json.loads(line.type("status", "--json").output)

    assert found["queues"][0]["consumers"][0]["silent_ms"] < 60_000


def test_json_has_the_documented_shape(line: CommandLine) -> None:
    line.add_node("mail")
    queue = line.queue("mail")
    queue.enqueue(*some_messages(3))
    queue.claim(1, consumer=CONSUMER)

    found = json.loads(line.type("status", "--json").output)

    documented = {"at_ms", "namespace", "verdict", "server", "nodes", "queues", "idle_queues", "totals"}
    assert found.keys() == documented | {
        "quarantined",
        "quarantined_places",
        "quarantined_more_places",
    }
    mail = found["queues"][0]
    assert (mail["name"], mail["ready"], mail["leased"], mail["in_per_s"]) == ("mail", 2, 1, None)
    assert mail["consumers"][0]["name"] == CONSUMER
    assert mail["consumers"][0]["held"] == 1
    assert found["nodes"][0]["children"][2]["held"] == 3
    assert found["totals"]["enqueued"] == 3


def test_rates_come_from_samples_that_any_node_wrote(line: CommandLine) -> None:
    line.add_node("mail")
    queue = line.queue("mail")
    queue.enqueue(*some_messages(40))
    with line.server.client() as client:
        now_s = client.time()[0]
        client.rpush("mqw:{mail}:samples", f"{(now_s - 4) * 1000} 0 0 0", "foreign bytes")
    queue.settle(*[Ack(each) for each in queue.claim(20, consumer=CONSUMER)], consumer=CONSUMER)

    mail = json.loads(line.type("status", "--json").output)["queues"][0]

    assert 7 < mail["in_per_s"] <= 10
    assert 3.5 < mail["out_per_s"] <= 5


def test_a_sample_is_written_once_a_second_by_whoever_is_first(line: CommandLine) -> None:
    keys = line.queue("mail").calls.keys

    noted = [line.store.run(sample(keys)) for _ in range(50)]

    assert noted[0]
    assert sum(noted) == 1  # while nothing changes, not even in the next second
    with line.server.client() as client:
        assert client.llen("mqw:{mail}:samples") == 1


def test_samples_are_capped(line: CommandLine) -> None:
    keys = line.queue("mail").calls.keys
    with line.server.client() as client:
        client.rpush("mqw:{mail}:samples", *(f"{1_700_000_000_000 - i} 0 0 0" for i in range(100)))

        line.store.run(sample(keys))

        assert client.llen("mqw:{mail}:samples") == 60


def test_a_node_whose_snapshot_expired_is_forgotten(line: CommandLine) -> None:
    with line.server.client() as client:
        client.sadd("mqw:nodes", "gone-1")

        line.type("status")

        assert client.smembers("mqw:nodes") == set()


def test_foreign_bytes_in_a_snapshot_neither_break_nor_reach_the_terminal(line: CommandLine) -> None:
    evil = a_child("broker\x1b[2J", last_exit="exit code 1: password=hunter2\r\nFAKE", restarts=1)
    line.add_node("mail", children=[evil, 7, {"facts": []}], app=["x"])
    with line.server.client() as client:
        client.sadd("mqw:nodes", "odd")
        client.set("mqw:node:odd", b"\xff no json", px=15_000)

    result = line.type("status")

    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "broker\\x1b[2J" in result.output
    assert not {"\x1b", "\r"} & set(result.output)
    assert "hunter2" not in result.output


def test_every_line_fits_80_columns(line: CommandLine) -> None:
    line.add_node("mail", children=[a_child("broker", restarts=2, last_exit="exit code 1: " + "x" * 200)])
    line.queue("a-queue-with-quite-a-long-name.that-goes-on-and-on").enqueue(*some_messages(3))

    lines = line.type("status").output.splitlines()

    assert max(map(len, lines)) <= 80
    assert all(each == each.rstrip() for each in lines)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Where the tests run in the background of a shell, interrupts are ignored, and by all children too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_watch_goes_on_until_interrupted(line: CommandLine) -> None:
    line.add_node("mail")
    command = [sys.executable, "-m", "mqworker", "status", "--json", "--watch", "-r", line.server.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        seen = [json.loads(watching.stdout.readline()) for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=10)

    assert (watching.returncode, errors) == (0, "")
    assert seen[1]["at_ms"] > seen[0]["at_ms"]


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(line: CommandLine) -> None:
    line.add_node("mail", "media")
    line.queue("mail").enqueue(*some_messages(3))
    line.queue("media").enqueue(*some_messages(2))
    with line.server.client() as client:
        client.set("mqw:{media}:dead", "foreign")

    found = json.loads(line.type("status", "--json").output)

    assert found["verdict"]["reasons"][0].startswith("queue media cannot be read: ")
    assert [queue["ready"] for queue in found["queues"]] == [3, 0]


@pytest.mark.parametrize("url", ["unix://{path}?db=2", "redis://127.0.0.1:{port}/2"])
def test_another_database_is_another_world(line: CommandLine, url: str) -> None:
    line.add_node("mail")

    result = line.type("status", "-r", url.format(path=line.server.socket_path, port=line.server.port))

    assert result.exit_code == 2


def test_a_password_that_is_not_accepted_is_told_like_an_outage(line: CommandLine) -> None:
    result = line.type("status", "-r", f"redis://:wrong@127.0.0.1:{line.server.port}")

    assert result.exit_code == 3
    assert result.output.startswith("no Redis: Redis at redis://:***@127.0.0.1")


def test_a_cluster_looks_the_same() -> None:
    with RealCluster() as cluster:
        line = CommandLine(cluster.servers[0])
        store = open_store(cluster.url)
        for name in ("mail", "media", "report"):
            WorkQueue(name, store).enqueue(*some_messages(2))

        found = json.loads(line.type("status", "--json", "-r", cluster.url).output)

        store.close()
        line.store.close()
    assert [(queue["name"], queue["ready"]) for queue in found["queues"]] == [
        ("mail", 2),
        ("media", 2),
        ("report", 2),
    ]
    assert found["server"]["primaries"] == 3
