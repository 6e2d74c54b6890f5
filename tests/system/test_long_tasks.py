"""Tasks with arguments and results near the limit of size: they travel in several mails, and all run."""

from __future__ import annotations

from mqworker import App
from mqworker.settings import Settings
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

APP = """
from mqworker import App

app = App("shop")

@app.task
def echo(data: bytes) -> bytes:
    return data
"""
COUNT = 80
LONG, LIMIT = 1_000_000, 1_048_576


def test_many_long_tasks_are_run_and_nobody_chokes() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url, max_message_bytes=LIMIT))
        echo = app.task(name="shop.echo")(lambda data: data)
        echo.enqueue_many([(b"",)] * 2_000)  # short ones before them: by then many are claimed at once
        jobs = [echo.enqueue(bytes([number]) * LONG) for number in range(COUNT)]
        settings = {"MQWORKER_MAX_MESSAGE_BYTES": str(LIMIT), "MQWORKER_WORKERS": "2"}
        node = RealNode(server.url, "shop:app", settings=settings)
        (node.directory / "shop.py").write_text(APP)
        with node:
            last = [job.result(timeout=60) for job in jobs[-3:]]
            restarts = [node.child(name)["restarts"] for name in ("dispatcher", "worker:0", "worker:1")]

    assert [value[0] for value in last] == [COUNT - 3, COUNT - 2, COUNT - 1]
    assert {len(value) for value in last} == {LONG}
    assert restarts == [0, 0, 0]
