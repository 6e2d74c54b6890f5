"""The three gateways hear rubbish for a while, live; a well-behaved client of each is served all the time.

Seconds in CI, ten minutes with DRILL_SIZE=full.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from mqworker_services.gateways.gomq.client import GomqClient
from tests.services.skmq.plain_sockets import Plain, frame
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port
from tests.support.resp_client import RespClient, packed

SECONDS = 600.0 if os.environ.get("DRILL_SIZE") == "full" else 6.0
SOON_S = 5.0
EVERY_S = 0.1
NAMES = ("redismq", "skmq", "gomq")
MOST_BYTES = 200_000

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\4\0\0\0\0\0"
SEEDS: dict[str, list[bytes]] = {
    "redismq": [
        packed("PING"),
        packed("MQ.PUSH", "fuzz:q", "x", "y"),
        packed("MQ.POP", 1, "BLOCK", 1, "fuzz:q"),
        packed("MQ.INSPECT", "fuzz:q", 0, 1),
        b"*3\r\n$7\r\nMQ.PUSH\r\n$999999\r\n",
        b"PING\r\nMQ.PUSH fuzz 'a\r\n",
        b"*1000000000\r\n",
    ],
    "skmq": [
        b"ping\r\n\r\n",
        frame(type="queue", appid="fuzz", msgid="m", content="x"),
        frame(type="register", content='{"id":"r","app_id":"fuzz","host":"127.0.0.1","port":"1"}'),
        frame(type="ack", msgid="m"),
        b"type=queue\r\nlength=99999999\r\ncontent=",
        b"length=4\r\ncontent=abcd\r\n\r\n",
    ],
    "gomq": [
        PREFACE + SETTINGS,
        PREFACE + SETTINGS + b"\0\0\5\1\4\0\0\0\1\x82\x84\x86\x41\x8a",
        PREFACE + b"\0\xff\xff\1\0\0\0\0\1",
        PREFACE + SETTINGS + b"\0\0\4\3\0\0\0\0\1\0\0\0\10" * 50,
        PREFACE + SETTINGS + b"\0\0\x08\6\0\0\0\0\0" + b"x" * 8,
    ],
}


def damaged(chance: random.Random, name: str) -> bytes:
    """Some of what the protocol knows, in any order, with bytes changed, lost and repeated."""
    data = bytearray(b"".join(chance.choices(SEEDS[name], k=chance.randint(1, 6))))
    for _ in range(chance.choice([0, 1, 1, 3, 20])):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place : place + 1] = chance.randbytes(chance.randint(1, 4))
            case 1:
                del data[place : place + chance.randint(1, 8)]
            case 2:
                data[place:place] = data[: chance.randint(1, 64)] * chance.randint(1, 40)
            case _:
                data[place:place] = chance.choice([b"\r\n", b"\0", b"\xff" * 9, b"{", b"$-1\r\n", b"9" * 30])
    return bytes(data[:MOST_BYTES])


class Fuzzer(threading.Thread):
    """Says rubbish on one connection after the other."""

    def __init__(self, name: str, port: int, ends_at: float, seed: int) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._of, self._port, self._ends_at = name, port, ends_at
        self._chance = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret

    def run(self) -> None:
        while time.monotonic() < self._ends_at:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), SOON_S) as stranger:
                stranger.settimeout(0.05)
                for _ in range(self._chance.randint(1, 5)):
                    stranger.sendall(damaged(self._chance, self._of))
                    self.sent += 1
                    with suppress(TimeoutError):
                        stranger.recv(65_536)


def test_a_well_behaved_client_is_served_while_strangers_speak_rubbish() -> None:
    ports = {name: free_port() for name in NAMES}
    places = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports.items())
    seed = int(os.environ.get("DRILL_SEED", "16"))
    with RealServer() as server, RealNode(server.url, settings={"MQWORKER_GATEWAYS": places}) as node:
        pids = {name: node.child(f"gateway:{name}")["pid"] for name in NAMES}
        ends_at = time.monotonic() + SECONDS
        fuzzers = [Fuzzer(name, ports[name], ends_at, seed + place) for place, name in enumerate(NAMES * 2)]
        for fuzzer in fuzzers:
            fuzzer.start()
        served, slowest_s = serve_until(ends_at, ports)
        for fuzzer in fuzzers:
            fuzzer.join(SECONDS + 60)
        after = {name: node.child(f"gateway:{name}")["pid"] for name in NAMES}
        with server.client() as raw:
            topics = raw.llen("QUEUE_honest")
        with RespClient(ports["redismq"]) as client:
            stored = len(client.say("MQ.INSPECT", "honest", 0, 10_000))

    assert after == pids
    assert all(fuzzer.sent > 0 for fuzzer in fuzzers)
    assert slowest_s < SOON_S
    assert topics == served
    assert stored == min(served, 10_000)


def serve_until(ends_at: float, ports: dict[str, int]) -> tuple[int, float]:
    """How often each of three clients was served, and how long the slowest call took."""
    served, slowest_s = 0, 0.0
    with ExitStack() as stack:
        resp = stack.enter_context(RespClient(ports["redismq"]))
        skmq = stack.enter_context(Plain(("127.0.0.1", ports["skmq"])))
        gomq = stack.enter_context(GomqClient(f"127.0.0.1:{ports['gomq']}"))
        while time.monotonic() < ends_at:
            number = served
            calls: list[Callable[[], object]] = [
                lambda: resp.say("MQ.PUSH", "honest", "x"),
                lambda number=number: skmq.ask(
                    type="queue", appid="honest", msgid=f"h-{number}", content="x"
                ),
                lambda: gomq.publish("honest", b"x"),
            ]
            for call in calls:
                began = time.monotonic()
                answer = call()
                slowest_s = max(slowest_s, time.monotonic() - began)
                assert not isinstance(answer, Exception), answer
                assert not isinstance(answer, dict) or answer["status"] == "ack", answer
            served += 1
            time.sleep(EVERY_S)
    if not served:
        pytest.fail("nobody was served")
    return served, slowest_s
