"""The port of a node: probes, metrics and /scale, while everything behind it is killed, stopped and away."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mqworker import App, Task
from mqworker.events import BEGINNING, decode_block, open_event_streams
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.monitored_node import (
    MonitoredNode,
    counters,
    fetch,
    open_files,
    raw_answer,
    value,
)
from tests.support.real_node import DEADLINE_S, RealNode
from tests.support.real_server import RealServer, free_port

QUICK_BEATS = {"MQWORKER_HEARTBEAT_INTERVAL_S": "0.2", "MQWORKER_HEARTBEAT_TIMEOUT_S": "2"}


@pytest.fixture
def server() -> Iterator[RealServer]:
    with RealServer() as started:
        yield started


def shop(server: RealServer) -> tuple[Task[[int], int], Task[[], None], Task[[float], None]]:
    app = App("shop", settings=Settings(redis_url=server.url))
    send = app.task(name="shop.send", queue="mail")(lambda number: number)
    fail = app.task(name="shop.fail", queue="mail")(lambda: None)
    nap = app.task(name="shop.nap", queue="slow")(lambda _seconds: None)
    return send, fail, nap  # type: ignore[return-value] - the node's app has the types


def test_a_node_says_that_it_lives_and_is_ready_and_when_it_drains(server: RealServer) -> None:
    _, _, nap = shop(server)
    with MonitoredNode(server.url, {"MQWORKER_DRAIN_S": "30"}) as node:
        port = node.port
        assert node.get("/livez") == (200, "live\n")
        wait_until(lambda: node.get("/readyz") == (200, "ready\n"), "ready", DEADLINE_S)
        nap.enqueue(3)
        wait_until(lambda: value(node.scrape(), "mqworker_workers", state="busy") == 1, "busy", DEADLINE_S)

        node.signal(signal.SIGTERM)
        wait_until(lambda: node.get("/readyz", port)[0] == 503, "the drain is told", DEADLINE_S)
        status, text = node.get("/readyz", port)
        scraped = fetch(port, "/metrics")[2]

        assert (status, text.endswith(" is draining\n")) == (503, True)
        assert fetch(port, "/livez")[::2] == (200, "live\n")
        assert "\nmqworker_node_draining 1\n" in scraped
        assert node.process.wait(DEADLINE_S) == 0


def test_a_supervisor_that_hangs_is_told_apart_from_one_that_lives(server: RealServer) -> None:
    with MonitoredNode(server.url) as node:
        port = node.port
        os.kill(node.process.pid, signal.SIGSTOP)
        try:
            assert fetch(port, "/livez")[::2] == (503, "not live: the supervisor does not answer\n")
            assert fetch(port, "/readyz")[::2] == (503, "not ready: the supervisor does not answer\n")
            assert "mqworker_redis_up 1\n" in fetch(port, "/metrics")[2]
        finally:
            os.kill(node.process.pid, signal.SIGCONT)
        wait_until(lambda: fetch(port, "/livez")[0] == 200, "it answers again", DEADLINE_S)


def test_without_redis_a_node_lives_is_not_ready_and_tells_what_it_knows(server: RealServer) -> None:
    with MonitoredNode(server.url, QUICK_BEATS) as node:
        wait_until(lambda: node.get("/readyz")[0] == 200, "ready", DEADLINE_S)
        server.pause()  # it accepts, and does not answer
        try:
            wait_until(lambda: node.get("/readyz")[0] == 503, "not ready", DEADLINE_S)
            assert node.get("/readyz")[1].startswith("not ready: Redis does not answer the beats of ")
            assert node.get("/livez") == (200, "live\n")
            away = node.scrape()
            assert value(away, "mqworker_redis_up") == 0
            assert value(away, "mqworker_actor_up", actor="worker") == 2
            assert node.get("/scale/mail")[0] == 503
        finally:
            server.resume()
        wait_until(lambda: node.get("/readyz")[0] == 200, "ready again", DEADLINE_S)
        wait_until(lambda: value(node.scrape(), "mqworker_redis_up") == 1, "up again", DEADLINE_S)


def test_what_is_counted_equals_the_events_and_the_lake(server: RealServer, tmp_path: Path) -> None:
    send, fail, nap = shop(server)
    with MonitoredNode(server.url) as node:
        send.enqueue_many([(number,) for number in range(300)])
        jobs = [fail.enqueue() for _ in range(7)]
        nap.enqueue(0.3)
        for job in jobs:
            wait_until(lambda job=job: job.status() == "failed", "failed", DEADLINE_S)  # type: ignore[misc]
        wait_until(lambda: value(node.scrape(), "mqworker_in_flight") == 0, "all is done", DEADLINE_S)

        def runs() -> float:
            scraped = node.scrape("/metrics/node")
            names = [("mail", "shop.send"), ("mail", "shop.fail"), ("slow", "shop.nap")]
            return sum(value(scraped, "mqworker_process_seconds_count", queue=q, task=t) for q, t in names)

        wait_until(lambda: runs() == 300 + 2 * 7 + 1, "workers told what they counted", DEADLINE_S)
        scraped = node.scrape()
        with open_event_streams(Settings(redis_url=server.url)) as streams:
            blocks = [block for page in streams.blocks("mail", BEGINNING, "+") for block in page]
        events = [
            event["event"] for each in blocks for event in decode_block(each.codec, each.data, each.void)
        ]

    for event in ("enqueued", "succeeded", "retried", "buried"):
        counted = value(scraped, "mqworker_messages_total", queue="mail", event=event)
        assert (event, counted) == (event, events.count(event))
    archived = _archived_events(server, tmp_path, "mail")
    assert archived == Counter(events)
    assert value(scraped, "mqworker_runs_total", queue="mail", task="shop.fail", outcome="retried") == 7
    assert value(scraped, "mqworker_runs_total", queue="mail", task="shop.fail", outcome="buried") == 7
    assert 0.3 <= value(scraped, "mqworker_process_seconds_sum", queue="slow", task="shop.nap") < 30
    slow = {"queue": "slow", "task": "shop.nap"}
    assert value(scraped, "mqworker_process_seconds_bucket", **slow, le="0.262144") == 0
    assert value(scraped, "mqworker_process_seconds_bucket", **slow, le="1073.741824") == 1


def _archived_events(server: RealServer, folder: Path, queue: str) -> Counter[str]:
    """What the lake has of a queue's events once they are archived."""
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'mqworker[lake]'")
    from mqworker_services.pipeline.archive import ArchivePlan, archive_once  # noqa: PLC0415 - see above
    from mqworker_services.pipeline.engine import LocalEngine  # noqa: PLC0415 - as above
    from mqworker_services.pipeline.lake import Lake  # noqa: PLC0415 - as above
    from mqworker_services.pipeline.lake_reading import read_columns  # noqa: PLC0415 - as above
    from mqworker_services.pipeline.schema import ARROW_SCHEMA  # noqa: PLC0415 - as above
    from mqworker_services.pipeline.table import lake_files  # noqa: PLC0415 - as above

    lake = Lake.at(str(folder / "lake"))
    archive_once(LocalEngine(), ArchivePlan(Settings(redis_url=server.url), lake), lambda *_: None)
    rows = [row for file in lake_files(lake) for row in read_columns(lake, file, ARROW_SCHEMA).to_pylist()]
    return Counter(row["event"] for row in rows if row["queue"] == queue)


def test_counters_never_fall_whoever_is_killed(server: RealServer) -> None:
    send, _, _ = shop(server)
    with MonitoredNode(server.url) as node:
        before = counters(node.scrape())
        victims = [child["name"] for child in node.snapshot()["children"]]
        for round_number, victim in enumerate([*victims, "dispatcher", "monitor", "worker:0"]):
            send.enqueue_many([(number,) for number in range(50)])
            done = 50.0 * (round_number + 1)
            wait_until(
                lambda done=done: (
                    value(  # type: ignore[misc]
                        node.scrape(), "mqworker_messages_total", queue="mail", event="succeeded"
                    )
                    >= done
                ),
                "all ran",
                DEADLINE_S,
            )
            node.kill(victim)
            # On a busy machine the supervisor, or Redis, may be too late for a scrape: a part is missing.
            scrapes = (counters(node.scrape()) for _ in range(100))
            after = next(each for each in scrapes if before.keys() <= each.keys())
            fallen = {key: (was, after[key]) for key, was in before.items() if after[key] < was}
            assert not fallen, (victim, fallen)
            before = after

        # A scrape may be told what was known a moment before.
        for actor, kills in (("dispatcher", 2), ("worker", 3), ("monitor", 2)):
            labels = {"actor": actor, "cause": "killed"}
            wait_until(
                lambda labels=labels, kills=kills: (
                    value(  # type: ignore[misc]
                        node.scrape(), "mqworker_actor_restarts_total", **labels
                    )
                    == kills
                ),
                f"{kills} kills of the {actor} are counted",
                DEADLINE_S,
            )
        wait_until(lambda: node.get("/readyz")[0] == 200, "ready after all", DEADLINE_S)


def test_scale_tells_work_and_how_many_workers_it_wants(server: RealServer) -> None:
    _, _, nap = shop(server)
    with MonitoredNode(server.url, {"MQWORKER_WORKERS": "1"}) as node:
        assert node.scale("never-used")["workers"] == 0
        nap.enqueue(0.5).result(DEADLINE_S)
        # Figures are written every ten seconds.
        wait_until(lambda: node.scale("slow")["run_s"], "the run time is known", DEADLINE_S)
        nap.using(delay=20).enqueue(0)
        nap.using(delay=2_000).enqueue(0)
        for _ in range(40):
            nap.enqueue(30)
        wait_until(lambda: node.scale("slow")["held"] == 1, "one runs", DEADLINE_S)

        document = node.scale("slow", "?target_wait_s=2&slots=1")
        quicker = node.scale("slow", "?target_wait_s=1")
        broader = node.scale("slow", "?target_wait_s=1&slots=8&soon_s=0")

    assert (document["ready"], document["due_soon"], document["messages"]) == (39, 1, 41)
    assert document["run_s"] == pytest.approx(0.5, rel=0.5)
    assert document["workers"] >= 10  # 0.5 s for each of 40, within 2 s
    assert quicker["workers"] > document["workers"] > broader["workers"] >= 1


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        (
            "/scale/mail?target_wait_s=soon",
            400,
            "target_wait_s: got 'soon'; accepted: a number from 0.1 to 3600",
        ),
        ("/scale/mail?target_wait_s=nan", 400, "accepted: a number"),
        ("/scale/mail?wait=3", 400, "'wait' is unknown; accepted are target_wait_s, soon_s, slots"),
        ("/scale/" + "q" * 300, 400, "queue"),
        ("/scale/a%01b", 400, "queue"),
        ("/nowhere", 404, "/readyz"),
        ("/", 200, "/metrics"),
    ],
)
def test_what_cannot_be_answered_says_what_can(
    still_node: MonitoredNode, path: str, status: int, text: str
) -> None:
    answered, said = still_node.get(path)

    assert (answered, text in said) == (status, True), said


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"405"),
        (b"hello\r\n\r\n", b"400"),
        (b"GET metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/2\r\n\r\n", b"400"),
        (b"GET //[ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * 20_000, b"431"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
        (bytes(range(256)) * 8 + b"\r\n\r\n", b"400"),
    ],
)
def test_a_request_that_is_none_is_answered_and_let_go(
    still_node: MonitoredNode, request_bytes: bytes, status: bytes
) -> None:
    answer = raw_answer(still_node.port, request_bytes)

    assert answer.split(b" ")[:2] == [b"HTTP/1.1", status]
    assert fetch(still_node.port, "/livez")[0] == 200


def test_a_thousand_silent_connections_are_let_go_and_no_probe_fails(still_node: MonitoredNode) -> None:
    port, pid = still_node.port, still_node.child("monitor")["pid"]
    before = open_files(pid)
    with ExitStack() as closing:
        links = []
        for number in range(1_000):
            link = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            links.append(closing.enter_context(link))
            if number % 50 == 49:
                assert fetch(port, "/livez")[0] == 200
        first = links[0].recv(1_000)
        last = links[-1].recv(1_000)

    assert first.startswith(b"HTTP/1.1 408 ")
    assert last.startswith(b"HTTP/1.1 408 ")
    assert still_node.child("monitor")["generation"] == 1
    wait_until(lambda: open_files(pid) <= before + 2, "all are closed", DEADLINE_S)


def test_a_client_that_does_not_read_is_nobody_elses_trouble(server: RealServer) -> None:
    send, _, _ = shop(server)
    for number in range(300):
        send.using(queue=f"q{number}").enqueue(number)
    with MonitoredNode(server.url) as node:
        port = node.port
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            for _ in range(5):
                assert fetch(port, "/livez")[0] == 200
                assert value(node.scrape(), "mqworker_messages_total", queue="q7", event="enqueued") == 1
        assert node.child("monitor")["generation"] == 1


def test_a_port_that_is_taken_is_waited_for_and_the_node_works(server: RealServer) -> None:
    send, _, _ = shop(server)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        node = MonitoredNode(server.url, {"MQWORKER_HTTP": f"127.0.0.1:{port}"})
        with node:
            assert send.enqueue(5).result(DEADLINE_S) == 5
            wait_until(lambda: "monitor_not_listening" in node.log(), "it is said", DEADLINE_S)
            taken.close()
            wait_until(lambda: _gets(port, "/readyz"), "it listens after all", DEADLINE_S)
            assert node.log().count("monitor_not_listening") == 1
            assert node.stop() == 0


def test_a_monitor_that_cannot_live_costs_nothing_but_itself(server: RealServer) -> None:
    send, _, _ = shop(server)
    with MonitoredNode(server.url) as node:
        for _ in range(5):
            node.kill("monitor")
            assert node.snapshot()["complete"]
        os.kill(node.child("monitor")["pid"], signal.SIGSTOP)

        assert send.enqueue(6).result(DEADLINE_S) == 6
        assert _health(node, "--ready") == (0, "ready\n")
        assert node.stop() == 0


def test_health_answers_without_importing_anything_heavy(server: RealServer) -> None:
    with RealNode(server.url) as node:
        wait_until(lambda: _health(node, "--ready")[0] == 0, "ready", DEADLINE_S)
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "mqworker", "health", "--ready"],
            cwd=node.directory,
            capture_output=True,
            text=True,
            check=True,
        )
        bare_s, health_s = (
            _quickest_s(node, "-c", "pass"),
            _quickest_s(node, "-m", "mqworker", "health", "--live"),
        )

    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert not modules & {"click", "redis", "typing", "dataclasses", "asyncio", "structlog", "msgpack"}
    # 30 ms in all on a quiet machine, most of it Python's own.
    assert health_s < 3 * bare_s + 0.03


def _quickest_s(node: RealNode, *arguments: str) -> float:
    taken: list[float] = []
    for _ in range(7):
        began_s = _cpu_of_children_s()  # not the time that passes: others may be using the machine
        subprocess.run([sys.executable, *arguments], cwd=node.directory, capture_output=True, check=True)
        taken.append(_cpu_of_children_s() - began_s)
    return min(taken)


def _cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _health(node: RealNode, question: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mqworker", "health", question],
        cwd=node.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _gets(port: int, path: str) -> bool:
    with suppress(OSError, ValueError):
        return fetch(port, path)[0] == 200
    return False


@pytest.fixture(scope="module")
def still_node() -> Iterator[MonitoredNode]:
    with RealServer() as server, MonitoredNode(server.url) as node:
        yield node
