"""A message that no worker here has time for is not claimed and given back again and again."""

from __future__ import annotations

import time

from mqworker import App
from mqworker.settings import Settings
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

APP = """
import time
from mqworker import App, Context

app = App("shop")

@app.task
def hold(ctx: Context, seconds: float) -> list[float]:
    began = time.monotonic()
    time.sleep(seconds)
    return [ctx.attempt, began]

@app.task
async def fetch(ctx: Context) -> int:
    return ctx.attempt
"""
HOLD_S = 3.0


def test_who_waits_for_a_busy_worker_is_claimed_few_times_though_its_event_loop_has_room() -> None:
    with RealServer() as server:
        app = App("shop", settings=Settings(redis_url=server.url))
        hold = app.task(name="shop.hold")(lambda seconds: [seconds])
        fetch = app.task(name="shop.fetch")(lambda: 1)
        node = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "1"})
        (node.directory / "shop.py").write_text(APP)
        with node:
            began = time.monotonic()
            jobs = [hold.enqueue(HOLD_S) for _ in range(4)]
            attempts, beginnings = zip(*(job.result(timeout=60) for job in jobs), strict=True)
            took_s = time.monotonic() - began
            fetched = fetch.enqueue().result(timeout=60)

    # The last one waits three times as long as a task takes: on its way it is tried after 1, 2, 4 seconds.
    assert max(attempts) <= 5, attempts
    assert list(beginnings) == sorted(beginnings), "what was given back was overtaken"
    assert took_s < 4 * HOLD_S + 5.0
    assert fetched == 1
