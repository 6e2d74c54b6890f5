"""A Node program with npm `rsmq` sends tasks; a node of ours runs them, and leaves them when it is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from mqworker import Rsmq
from tests.interop.rsmq_clients import NodeRsmq
from tests.support.real_server import RealServer
from tests.system.model_app import QUEUE
from tests.system.model_node import ModelNode


@pytest.fixture
def worker_node(server: RealServer, raw: redis.Redis, tmp_path: Path) -> Iterator[ModelNode]:  # noqa: ARG001
    running = ModelNode(tmp_path, server.url, Rsmq(vt=2))
    running.start()
    yield running
    running.stop()


def test_a_task_that_node_sends_is_run_and_one_of_ours_is_read_by_node(
    node: NodeRsmq, worker_node: ModelNode
) -> None:
    node("createQueue", qname=QUEUE)
    task = {"task": "tell", "args": ["hi"], "headers": {"from": "node"}}
    sent = node("sendMessage", qname=QUEUE, message=json.dumps(task))

    worker_node.wait("told")
    worker_node.wait_until(lambda: node("getQueueAttributes", qname=QUEUE)["msgs"] == 0, "done is deleted")

    assert worker_node.lines("told") == [["hi", "1", "node", sent, "False"]]
    delayed = worker_node.tasks.tell.using(delay=3600).enqueue("later")
    node("changeMessageVisibility", qname=QUEUE, id=delayed.id, vt=0)
    worker_node.wait("told", 2)


def test_what_a_killed_node_held_is_received_by_others_when_its_time_is_over(
    node: NodeRsmq, worker_node: ModelNode
) -> None:
    """M20."""
    worker_node.tasks.count.enqueue(1, 60.0)
    worker_node.wait("begun")

    worker_node.kill_all()
    received: list[dict[str, object]] = []
    worker_node.wait_until(
        lambda: received or received.extend(filter(None, [node("receiveMessage", qname=QUEUE)])), "it is back"
    )

    assert received[0]["rc"] == 2
