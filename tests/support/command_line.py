"""The command line against a real server: runs a command, fakes the nodes that would be there."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from click.testing import CliRunner, Result

from mqworker.cli.main import mqworker
from mqworker.queues.work.queue import WorkQueue
from tests.support.messages import open_store
from tests.support.real_server import RealServer

Fact: TypeAlias = Any
"""A plain value of a snapshot: its type depends on which."""

NODE = "web-1"
CONSUMER = f"{NODE}.ab12cd34.1"


class CommandLine:
    """Types commands; each has the server's address in its environment."""

    def __init__(self, server: RealServer) -> None:
        self.server = server
        self.store = open_store(server.url)

    def type(self, *words: str, answer: str | None = None) -> Result:
        """Run `mqworker` with these words."""
        environment = {"MQWORKER_REDIS_URL": self.server.url, "COLUMNS": "80"}
        return CliRunner(env=environment).invoke(mqworker, words, input=answer)

    def queue(self, name: str) -> WorkQueue:
        """A queue on the server."""
        return WorkQueue(name, self.store)

    def add_node(self, *queues: str, models: Fact = None, running: Fact = None, **facts: Fact) -> None:
        """A node that consumes these queues, as its heartbeat reaper would show it."""
        dispatcher = {
            "queues": queues,
            "workers": {"worker:1": 3},
            "models": models or {},
            "running": running or {},
        }
        children = [
            a_child("broker"),
            a_child("dispatcher", role="dispatcher", facts=dispatcher),
            a_child("worker:1", role="worker", facts={"ran": 1_234}),
        ]
        snapshot = {"node": NODE, "app": "shop:app", "pid": 4711, "draining": False, "children": children}
        with self.server.client() as client:
            client.sadd("mqw:nodes", NODE)
            client.set(f"mqw:node:{NODE}", json.dumps(snapshot | facts), px=15_000)


def a_child(name: str, **facts: Fact) -> dict[str, Any]:
    """One child of a node, as the supervisor shows it."""
    usual = {
        "name": name,
        "role": "actor",
        "generation": 1,
        "pid": 4712,
        "state": "live",
        "restarts": 0,
        "last_exit": None,
        "silent_ms": 120,
        "progress": 99,
        "facts": {},
    }
    return usual | facts
