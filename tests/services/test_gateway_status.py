"""`mqworker status` beside a real gateway: its line on the screen, and its figures in the document."""

from __future__ import annotations

import json

import redis

from tests.support.command_line import CommandLine
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer


def test_the_status_shows_what_goes_through_a_gateway(
    gateway_server: RealServer, redismq_node: RealNode, redismq_port: int
) -> None:
    line, place = (
        CommandLine(gateway_server),
        f"127.0.0.1:{redismq_port}",
    )  # other nodes may be seen there, too

    def figures() -> dict[str, object]:
        """Nothing was seen of it before the first heartbeat of its node."""
        nodes = json.loads(line.type("status", "--json").output)["nodes"]
        gateways = [each for node in nodes for each in node["gateways"] if each["listens"] == place]
        return gateways[0] if gateways else {"in": -1}

    before = redismq_node.facts("gateway:redismq")
    with redis.Redis(port=redismq_port) as client:
        client.execute_command("MQ.PUSH", "seen-in-status", "a", "b")
        wait_until(lambda: figures()["in"] > before["in"], "the push is counted", 30)  # type: ignore[operator]
        shown = figures()
        screen = line.type("status").output
    line.store.close()

    assert shown["name"] == "redismq"
    assert isinstance(shown["connections"], int)
    assert shown["connections"] >= 1
    assert f"  redismq  {place}" in screen
