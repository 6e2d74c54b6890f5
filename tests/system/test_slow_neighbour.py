"""A task that was quick so far takes long for once: nothing waits behind it while another worker is free."""

from __future__ import annotations

from mqworker import App
from mqworker.settings import Settings
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

APP = """
import time
from pathlib import Path
from mqworker import App

app = App("shop")

@app.task
def work(file: str) -> None:
    while file and not Path(file).exists():
        time.sleep(0.001)

@app.task
def quick() -> int:
    return 1
"""


def test_what_was_sent_to_a_worker_that_got_stuck_is_run_by_another() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        work, quick = app.task(name="shop.work")(lambda file: file), app.task(name="shop.quick")(lambda: 1)
        node = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "2"})
        (node.directory / "shop.py").write_text(APP)
        with node:
            for _ in range(20):
                assert quick.enqueue().result(timeout=60) == 1
                work.enqueue("").result(timeout=60)
            stuck = work.enqueue(str(node.directory / "go"))
            jobs = quick.enqueue_many([()] * 300)
            done = [job.result(timeout=60) for job in jobs]  # the stuck one would wait for ever
            (node.directory / "go").touch()
            stuck.result(timeout=60)

    assert done == [1] * 300


def test_a_node_whose_workers_are_busy_keeps_nothing_from_another() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        work, quick = app.task(name="shop.work")(lambda file: file), app.task(name="shop.quick")(lambda: 1)
        nodes = [RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "1"}) for _ in range(2)]
        go = nodes[0].directory / "go"
        for node in nodes:
            (node.directory / "shop.py").write_text(APP + LOOPS)
        with nodes[0], nodes[1]:
            assert [quick.enqueue().result(timeout=60) for _ in range(50)] == [1] * 50
            stuck = work.enqueue(str(go))  # at one of them, whose loops have room all the same
            done = [job.result(timeout=60) for job in quick.enqueue_many([()] * 500)]
            done += [quick.enqueue().result(timeout=60) for _ in range(100)]  # handed over one by one
            go.touch()
            stuck.result(timeout=60)

    assert done == [1] * 600


LOOPS = """
@app.task
async def fetch() -> None: ...
"""
