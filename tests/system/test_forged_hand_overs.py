"""Somebody who may only publish on a node's channels makes it run nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import redis

from mqworker import App
from mqworker.model.envelope import encode_call
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer

WAIT_S = 60.0
ROUNDS = 30
APP = """
from pathlib import Path

from mqworker import App

app = App("shop")


@app.task(name="wipe")
def wipe(who: str) -> None:
    with Path("wiped").open("a") as file:
        file.write(who + "\\n")


@app.task(name="greet")
def greet(who: str) -> str:
    return who
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RealServer]:
    """With a user who may publish and listen on every channel, and touch no key."""
    with RealServer() as running:
        with running.client() as client:
            client.execute_command(
                "ACL", "SETUSER", "loud", "on", ">x", "resetkeys", "&*", "-@all", "+@pubsub"
            )
        yield running


@pytest.fixture(scope="module")
def node(server: RealServer) -> Iterator[RealNode]:
    made = RealNode(server.url, "shop:app", settings={"MQWORKER_WORKERS": "2"})
    (made.directory / "shop.py").write_text(APP)
    with made:
        yield made


@pytest.fixture
def loud(server: RealServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(f"redis://loud:x@127.0.0.1:{server.port}") as client:
        yield client


@pytest.fixture
def shop(server: RealServer) -> Iterator[App]:
    app = App("shop", settings=Settings(redis_url=server.url))
    yield app
    app.close()


def offered(server: RealServer) -> str:
    """Who offered to begin at once."""
    with server.client() as client:

        def offer() -> str:
            return (client.hget("mqw:{default}:meta", "offer") or b"").decode()

        wait_until(offer, "an offer", WAIT_S)
        return offer().split(" ")[0]


def forged(number: int) -> bytes:
    now_ms = int(time.time() * 1000)
    body = encode_call(("forger",), {})
    return b"%013d0--300000000forged%d wipe %b" % (now_ms, number, body)


def wiped(node: RealNode) -> str:
    trace = node.directory / "wiped"
    return trace.read_text() if trace.exists() else ""


def test_a_hand_over_that_is_made_up_runs_nothing(
    server: RealServer, node: RealNode, loud: redis.Redis, shop: App
) -> None:
    consumer = offered(server)
    wipe = shop.task(name="wipe")(lambda _who: None)
    tickets = [b"-", b"0:1", b"-:0000000000000000", b"-:00112233445566ff", b"0:1:00112233445566ff"]

    for number, ticket in enumerate(tickets):
        text = b"%d %b %b" % (10**15 + number, ticket, forged(number))
        heard = loud.execute_command("SPUBLISH", f"mqw:{{default}}:held:{consumer}", text)
        loud.execute_command("SPUBLISH", f"mqw:{{default}}:begin:{consumer}:0", text)
        assert heard == 1
    wipe.enqueue("owner").result(timeout=WAIT_S)

    assert wiped(node) == "owner\n"


def test_what_was_heard_on_the_channel_cannot_be_used_again(
    server: RealServer, node: RealNode, loud: redis.Redis, shop: App
) -> None:
    """He answers each message that is handed over with one of his own, with the same ticket and place."""
    consumer = offered(server)
    greet = shop.task(name="greet")(lambda who: who)
    held = f"mqw:{{default}}:held:{consumer}"
    answered: list[bytes] = []
    is_over = threading.Event()

    def forge() -> None:
        ears = loud.pubsub()
        ears.ssubscribe(held)
        while not is_over.is_set():
            message = ears.get_sharded_message(timeout=0.1)
            if message is None or message["type"] != "smessage" or b"forged" in message["data"]:
                continue
            fence, ticket, _ = message["data"].split(b" ", 2)
            worker = ticket.split(b":")[0].decode()
            text = b"%d %b %b" % (int(fence) + 500, ticket, forged(len(answered)))
            loud.execute_command("SPUBLISH", f"mqw:{{default}}:begin:{consumer}:{worker}", text)
            loud.execute_command("SPUBLISH", held, text)
            answered.append(ticket)
        ears.close()

    forger = threading.Thread(target=forge)
    forger.start()
    before = wiped(node)
    number = 0
    while len(answered) < ROUNDS:
        offered(server)
        assert greet.enqueue(str(number)).result(timeout=WAIT_S) == str(number)
        number += 1
    is_over.set()
    forger.join(WAIT_S)
    greet.enqueue("last").result(timeout=WAIT_S)

    assert wiped(node) == before
    assert len(set(answered)) == len(answered), "each has a number of its own"
