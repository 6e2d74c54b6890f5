"""An independent client: npm `@grpc/grpc-js`, which reads our .proto by itself."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.interop.rsmq_clients import CannotInstall, npm_packages
from tests.services.gomq.conftest import Connect
from tests.services.gomq.gomq_node import DEADLINE_S, GomqNode
from tests.support.deadline import wait_until

PACKAGES = ("@grpc/grpc-js@1.14.0", "@grpc/proto-loader@0.8.0")
DRIVER = Path(__file__).with_name("gomq_driver.js")
PROTO = Path(__file__).parents[3] / "services" / "mqworker_services" / "gateways" / "gomq" / "gomq.proto"


class NodeGomq:
    """A Node.js process with one connection."""

    def __init__(self, modules: Path, target: str) -> None:
        self._process = subprocess.Popen(
            ["node", str(DRIVER), str(modules), str(PROTO), target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, method: str, times: int = 1, **request: str) -> list[dict[str, Any]]:
        """Make a call so many times at once; the answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"method": method, "request": request, "times": times}) + "\n")
        self._process.stdin.flush()
        answers: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
        return answers

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def node_client(
    node: GomqNode,
    raw: redis.Redis,  # noqa: ARG001 - the flush comes first
    request: pytest.FixtureRequest,
) -> Iterator[NodeGomq]:
    """The npm client."""
    try:
        modules = npm_packages(request.config.cache.mkdir("npm-grpc"), *PACKAGES)
    except CannotInstall as reason:
        pytest.skip(f"no npm @grpc/grpc-js: {reason}")
    client = NodeGomq(modules, node.target)
    yield client
    client.close()


def test_node_and_python_hear_one_another(node_client: NodeGomq, connect: Connect) -> None:
    python = connect()
    payload = bytes.fromhex("ff000d0a0d0a6869")
    assert node_client("Subscribe", key="FOO", consumerID="node") == [{"code": 0}]
    python.subscribe("FOO", "python")

    python.publish("FOO", payload)
    results = node_client("Publish", times=500, key="FOO", payload=base64.b64encode(payload).decode())
    observed: list[dict[str, Any]] = []
    wait_until(
        lambda: (
            observed.extend(node_client("Observe", consumerID="node")[0]["records"]) or len(observed) >= 501
        ),
        "all records came",
        DEADLINE_S,
    )
    by_python = python.observe_until("python", 501)

    assert results == [{"code": 0}] * 500
    assert {record["value"]["payload"] for record in observed} == {base64.b64encode(payload).decode()}
    assert [record["value"]["id"] for record in observed] == [record.value.id for record in by_python]
    assert len({record.value.id for record in by_python}) == 501
    assert node_client("Unsubscribe", times=2, key="FOO", consumerID="node") == [{"code": 0}] * 2


def test_node_is_told_what_is_accepted(node_client: NodeGomq) -> None:
    assert node_client("Publish", key="", payload="") == [
        {"error": "INVALID_ARGUMENT", "text": "key is ''; accepted is a text of 1 to 512 bytes of UTF-8"}
    ]
    node_client("Subscribe", key="A_B", consumerID="C")
    assert node_client("Subscribe", key="A", consumerID="B_C")[0]["error"] == "ALREADY_EXISTS"
