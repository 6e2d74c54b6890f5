"""Accidents: what a killed worker ran is noted once, with its signal, its memory and what became of it."""

from __future__ import annotations

from mqworker import App
from mqworker.actors.dispatcher.accidents import TRY_AGAIN_MS, AccidentLog
from mqworker.actors.dispatcher.workers import WorkerState
from mqworker.log import get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Crash, Release
from mqworker.operate.system import System, opened
from mqworker.queues.work.accidents import KEPT, MOST_RUNS, Accident, LostRun, note_call, read_accidents
from mqworker.settings import Settings
from mqworker.tasks.remote_tasks import read_published_tasks
from tests.support.deadline import wait_until
from tests.support.messages import a_message
from tests.support.real_server import RealServer
from tests.support.shop_node import shop_node

APP = """
import os, signal, time
from mqworker import App
app = App("shop")

@app.task(max_crashes=2)
def burn() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@app.task(timeout=0.2, hard_timeout=0.5, retry=0)
def hang() -> None:
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
"""
DEADLINE_S = 60.0


def a_delivery() -> Delivery:
    with (
        RealServer() as server,
        opened(Settings(redis_url=server.url), client_name="t", retry_for_ms=0) as one,
    ):
        one.open_queue("mail").enqueue(a_message())
        return one.open_queue("mail").claim()[0]


def an_accident(worker: str = "worker:0", runs: int = 1) -> Accident:
    lost = tuple(LostRun("mail", f"m{number}", "shop.send", 1, "crashed") for number in range(runs))
    return Accident("web-1", worker, "SIGKILL", 1_000_000, lost)


def test_a_killed_worker_leaves_what_it_ran_its_signal_and_its_memory(
    system: System, server: RealServer
) -> None:
    node = shop_node(server, APP, {"MQWORKER_WORKERS": "1", "MQWORKER_NODE": "web-1"})
    app = App("front", settings=system.settings)
    with node:
        wait_until(lambda: read_published_tasks(system.store, "mqw"), "its tasks are published", DEADLINE_S)
        burnt, hung = app.send("shop.burn").id, app.send("shop.hang").id
        wait_until(
            lambda: len(read_accidents(system.store, "mqw")) == 3, "three accidents were noted", DEADLINE_S
        )
    app.close()

    found = read_accidents(system.store, "mqw")

    fates = sorted((run.id == hung, run.fate) for each in found for run in each.runs)
    assert fates == [(False, "buried"), (False, "crashed"), (True, "buried")]
    assert {run.id for each in found for run in each.runs} == {burnt, hung}
    assert {(each.node, each.worker) for each in found} == {("web-1", "worker:0")}
    assert all("SIGKILL" in each.cause for each in found)
    assert any(each.cause.startswith("hard time-out") for each in found)
    assert all(each.rss_bytes > 1_000_000 and each.at_ms > 0 for each in found)


def test_an_accident_that_is_told_twice_is_noted_once(system: System) -> None:
    for _ in range(2):
        system.store.run(note_call("mqw", "mark", an_accident()))

    assert len(read_accidents(system.store, "mqw")) == 1


def test_the_stream_is_bounded(system: System, server: RealServer) -> None:
    for number in range(KEPT + 300):
        system.store.run(note_call("mqw", f"mark-{number}", an_accident()))

    with server.client() as client:
        assert client.xlen("mqw:accidents") < KEPT + 200


def test_what_a_foreign_hand_wrote_is_passed_over(system: System, server: RealServer) -> None:
    with server.client() as client:
        client.xadd("mqw:accidents", {"mark": "x", "told": "<script>"})
        client.xadd("mqw:accidents", {"told": '{"runs": 7}'})
    system.store.run(note_call("mqw", "mark", an_accident(worker="worker:7")))

    assert [each.worker for each in read_accidents(system.store, "mqw")] == ["worker:7"]


def test_while_redis_is_away_an_accident_waits_and_the_dispatcher_goes_on() -> None:
    with RealServer() as server:
        settings = Settings(redis_url=server.url, connect_timeout_s=0.5, read_timeout_s=0.5)
        with opened(settings, client_name="mqw-test", retry_for_ms=0) as system:
            log = AccidentLog(system.store, "mqw", "web-1", get_logger())
            delivery = a_delivery()
            log.note({"mail": [Crash(delivery)] * (MOST_RUNS + 5)}, WorkerState("worker:0"), "SIGKILL")
            log.note({"mail": [Release(delivery)]}, WorkerState("worker:1"), "SIGKILL")  # nothing was begun
            server.pause()
            log.write(0)
            server.resume()
            log.write(1)  # too soon
            assert read_accidents(system.store, "mqw") == []

            log.write(TRY_AGAIN_MS)

            (found,) = read_accidents(system.store, "mqw")
            assert (found.worker, len(found.runs), found.left_out) == ("worker:0", MOST_RUNS, 5)
