"""`mqworker rsmq` as a person types it: the commands of rsmqctl, on a real server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.real_server import RealServer

DEADLINE_S = 60


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    with RealServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _flushed(server: RealServer) -> None:
    with server.client() as client:
        client.flushall()


def rsmq(server: RealServer, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")}
    done = subprocess.run(
        [sys.executable, "-m", "mqworker", "rsmq", "-r", server.url, *arguments],
        env={**environment, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_queue_is_made_listed_described_and_deleted(server: RealServer) -> None:
    made = rsmq(server, "queue", "create", "-n", "mail", "-t", "5", "-d", "1", "-m", "2048")
    listed = rsmq(server, "queue", "list")
    described = rsmq(server, "queue", "describe", "-n", "mail")
    deleted = rsmq(server, "queue", "delete", "-n", "mail")

    attributes = json.loads(described[1])
    assert made == (0, "", "queue mail is ready\n")
    assert listed == (0, '["mail"]\n', "")
    assert (attributes["vt"], attributes["delay"], attributes["maxsize"]) == (5, 1, 2048)
    assert attributes.keys() >= {"totalsent", "totalrecv", "created", "modified", "msgs", "hiddenmsgs"}
    assert deleted == (0, "", "queue mail and its messages are gone\n")
    assert rsmq(server, "queue", "list")[1] == "[]\n"


def test_a_message_is_sent_received_shown_again_and_deleted(server: RealServer) -> None:
    rsmq(server, "queue", "create", "-n", "mail")
    _, sent, _ = rsmq(server, "message", "send", "-n", "mail", "-m", "Grüße")
    message_id = sent.strip()

    received = json.loads(rsmq(server, "message", "receive", "-n", "mail", "-t", "600")[1])
    nothing = rsmq(server, "message", "receive", "-n", "mail")
    shown = rsmq(server, "message", "visibility", "-n", "mail", "-i", message_id, "-t", "0")
    again = json.loads(rsmq(server, "message", "receive", "-n", "mail")[1])
    deleted = rsmq(server, "message", "delete", "-n", "mail", "-i", message_id)
    twice = rsmq(server, "message", "delete", "-n", "mail", "-i", message_id)

    assert (received["id"], received["message"], received["rc"]) == (message_id, "Grüße", 1)
    assert received["ts"] == received["fr"] >= received["sent"] - 1
    assert nothing == (0, "", "queue mail has no message to give now\n")
    assert shown == (0, "", f"message {message_id} can be received in 0 s\n")
    assert (again["id"], again["rc"], again["fr"]) == (message_id, 2, received["fr"])
    assert deleted == (0, "", f"message {message_id} is gone\n")
    assert twice == (1, "", f"mqworker: queue mail has no message {message_id} [not-possible]\n")


def test_a_popped_message_is_gone(server: RealServer) -> None:
    rsmq(server, "queue", "create", "-n", "mail")
    rsmq(server, "message", "send", "-n", "mail", "-m", "once")

    popped = json.loads(rsmq(server, "message", "pop", "-n", "mail")[1])

    assert popped["message"] == "once"
    assert rsmq(server, "message", "pop", "-n", "mail") == (0, "", "queue mail has no message to give now\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (
            ["message", "send", "-n", "mail", "-m", "x"],
            1,
            "Queue not found (qname is 'mail') [rsmq-queue-not-found]",
        ),
        (["queue", "delete", "-n", "mail"], 1, "Queue not found (qname is 'mail') [rsmq-queue-not-found]"),
        (
            ["queue", "create", "-n", "a.b"],
            2,
            "Invalid qname format (qname is 'a.b') [rsmq-invalid-argument]",
        ),
        (
            ["queue", "create", "-n", "m", "-t", "-1"],
            2,
            "vt must be between 0 and 9999999 (it is -1) [rsmq-invalid-argument]",
        ),
        (
            ["message", "delete", "-n", "mail", "-i", "x"],
            2,
            "Invalid id format (id is 'x') [rsmq-invalid-argument]",
        ),
    ],
)
def test_a_refusal_is_one_sentence_and_a_code(
    server: RealServer, arguments: list[str], code: int, text: str
) -> None:
    assert rsmq(server, *arguments) == (code, "", f"mqworker: {text}\n")


def test_another_namespace_is_another_set_of_queues(server: RealServer) -> None:
    rsmq(server, "queue", "create", "-n", "mail")

    assert rsmq(server, "--ns", "other", "queue", "list") == (0, "[]\n", "")


def test_a_server_that_is_not_there_is_one_sentence_and_a_code(server: RealServer) -> None:
    environment = {**os.environ, "MQWORKER_RETRY_FOR_S": "0", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mqworker",
            "rsmq",
            "-r",
            f"unix://{server.directory}/no.sock",
            "queue",
            "list",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert (done.returncode, done.stdout) == (69, "")
    assert "cannot be reached" in done.stderr
