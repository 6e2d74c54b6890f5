"""A node whose server is away waits for it, and costs the machine next to nothing meanwhile."""

from __future__ import annotations

import time
from contextlib import closing

import psutil

from mqworker import App
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

DEADLINE_S = 60.0
WATCHED_S = 5.0
MOST_OF_A_CORE = 0.03
"""Of each process; what turns without a pause takes at least twice that."""


def cpu_s(node: RealNode) -> dict[str, float]:
    """What each process has used so far."""
    children = {child["name"]: child["pid"] for child in node.snapshot()["children"]}
    return {name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in children.items()}


def test_no_process_spins_while_the_server_is_away() -> None:
    with RealServer() as server, RealNode(server.url, "tests.system.foreign_app:app") as node:
        wait_until(lambda: '"what": "tasks"' in node.log(), "its tasks are known by name", DEADLINE_S)
        with closing(App("caller", redis_url=server.url)) as caller:
            caller.send("tests.system.foreign_app.echo", "there").result(timeout=DEADLINE_S)
        server.kill()
        wait_until(lambda: node.log().count("store_unavailable") >= 2, "actors say so", DEADLINE_S)

        before, began_s = cpu_s(node), time.monotonic()
        time.sleep(WATCHED_S)  # what is measured is a rate
        after, passed_s = cpu_s(node), time.monotonic() - began_s

        used = {name: (after[name] - before[name]) / passed_s for name in before}
        assert max(used.values()) < MOST_OF_A_CORE, used
