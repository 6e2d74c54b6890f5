"""`mqworker run --web`: the console as a child of a node, supervised like a gateway."""

from __future__ import annotations

import httpx2

from tests.support.deadline import wait_until
from tests.support.node_process import ROOT
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port

DEADLINE_S = 60.0


def status_of(origin: str) -> int | None:
    try:
        return int(httpx2.get(f"{origin}/").status_code)
    except httpx2.TransportError:
        return None


def words_of(url: str, *words: str) -> set[str]:
    text = httpx2.get(url).text
    return {word for word in words if word in text}


def test_a_node_serves_the_console_restarts_it_and_stops_with_it() -> None:
    place = f"127.0.0.1:{free_port()}"
    path = {"PYTHONPATH": f"{ROOT}:{ROOT / 'services'}", "MQWORKER_WORKERS": "1", "MQWORKER_NODE": "web-1"}
    with RealServer() as server, RealNode(server.url, settings=path | {"MQWORKER_WEB": place}) as node:
        wait_until(lambda: status_of(f"http://{place}") == 200, "the console answers", DEADLINE_S)

        node.kill("gateway:web")

        wait_until(lambda: status_of(f"http://{place}") == 200, "it answers again", DEADLINE_S)
        wait_until(
            lambda: {place, "1 restart"} <= words_of(f"http://{place}/gateways", place, "1 restart"),
            "its page tells of itself",
            DEADLINE_S,
        )
        with httpx2.stream("GET", f"http://{place}/live?path=/") as tab:
            next(tab.iter_lines())  # a tab is open
            assert node.stop() == 0
        assert status_of(f"http://{place}") is None
