"""Registration, choice, push, feedback, retry and dead letters over real sockets: cases K14 to K26."""

from __future__ import annotations

import threading
import time
from collections import Counter

from tests.services.skmq.conftest import Connect
from tests.services.skmq.plain_sockets import Consumer, Plain, Pushed, a_name, acknowledge, reject
from tests.services.skmq.skmq_node import SkmqNode
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

DEADLINE_S = 60.0


def is_free(client: Plain, app: str, message: str) -> bool:
    """Whether a message of this id would be new; if so, it is stored."""
    reply = client.ask(type="queue", appid=app, msgid=message, content="again")
    return reply["content"] == "Message enqueue successful"


def dead_letters(server: RealServer, app: str) -> int:
    with server.client() as raw:
        return int(raw.zcard(f"mqw:{{skmq.{app.replace('-', '--')}}}:dead"))


def test_k14_weights_share_messages_out(connect: Connect) -> None:
    client, app = connect(), a_name("app")
    with Consumer(acknowledge) as light, Consumer(acknowledge) as heavy:
        client.register(app, "light", light.port, weight=0)
        client.register(app, "heavy", heavy.port, weight=2)

        for number in range(1, 13):
            client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")
            wait_until(lambda n=number: light.count + heavy.count == n, "it is pushed", DEADLINE_S)

        assert (light.count, heavy.count) == (3, 9)


def test_k15_a_topic_reaches_every_recipient_of_its_app_once(connect: Connect) -> None:
    client, app, other_app, message = connect(), a_name("app"), a_name("app"), a_name("m")
    consumers = [Consumer(acknowledge) for _ in range(4)]
    for number, consumer in enumerate(consumers):
        client.register(other_app if number == 3 else app, a_name("r"), consumer.port)

    client.ask(type="topic", appid=app, msgid=message, content="news")
    pushes = [consumer.next().fields for consumer in consumers[:3]]
    wait_until(lambda: is_free(client, app, message), "all copies are settled", DEADLINE_S)

    assert (
        pushes
        == [{"type": b"push", "appid": app.encode(), "msgid": message.encode(), "content": b"news"}] * 3
    )
    assert consumers[3].count == 0
    for consumer in consumers:
        consumer.close()


def test_k16_an_ack_ends_the_message_and_the_connection(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer() as consumer:
        client.register(app, a_name("r"), consumer.port)
        client.ask(type="queue", appid=app, msgid=message, content="x")
        pushed = consumer.next()

        assert b'"status":"ack"' in pushed.say("ack")
        assert pushed.read() == b""
        assert is_free(client, app, message)


def test_k17_arrived_and_then_ack_on_the_same_connection(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer() as consumer:
        client.register(app, a_name("r"), consumer.port)
        client.ask(type="queue", appid=app, msgid=message, content="x")
        pushed = consumer.next()

        assert b'"status":"ack"' in pushed.say("arrived")
        assert b'"status":"ack"' in pushed.say("ack")
        assert is_free(client, app, message)


def test_k18_an_ack_on_another_connection_counts(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer() as consumer:
        client.register(app, a_name("r"), consumer.port)
        client.ask(type="queue", appid=app, msgid=message, content="x")
        pushed = consumer.next()
        pushed.say("arrived")
        closed = pushed.read()

        acked = connect().ask(type="ack", msgid=message)

        assert closed == b""
        assert acked == {"status": "ack", "content": ""}
        assert is_free(client, app, message)
        assert consumer.next().fields["content"] == b"again"


def test_k19_a_message_without_an_ack_is_pushed_again(server: RealServer) -> None:
    app, message = a_name("app"), a_name("m")
    with (
        SkmqNode(server.url, namespace="k19", ack_timeout=300, retry_delay=50) as hasty,
        Consumer() as consumer,
    ):
        client = Plain(hasty.address)
        client.register(app, a_name("r"), consumer.port)
        client.ask(type="queue", appid=app, msgid=message, content="x")
        first = consumer.next()
        first.say("arrived")
        second = consumer.next()
        second.say("ack")

        assert (first.msgid, second.msgid) == (message, message)
        wait_until(lambda: is_free(client, app, message), "it is settled", DEADLINE_S)
        client.close()


def test_k20_a_message_that_is_always_rejected_dies(connect: Connect, server: RealServer) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer(reject) as consumer:
        client.register(app, a_name("r"), consumer.port)

        client.ask(type="queue", appid=app, msgid=message, content="x")
        wait_until(lambda: dead_letters(server, app) == 1, "it is dead", DEADLINE_S)

        assert consumer.count == 3
        assert is_free(client, app, message)


def test_k21_an_error_ends_a_message_at_once(connect: Connect, server: RealServer) -> None:
    client, app = connect(), a_name("app")
    with Consumer(lambda pushed: [pushed.say("error")][:0]) as consumer:
        client.register(app, a_name("r"), consumer.port)

        client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")
        wait_until(lambda: dead_letters(server, app) == 1, "it is dead", DEADLINE_S)

        assert consumer.count == 1


def test_k22_a_recipient_that_cannot_be_reached_is_lost_until_it_registers(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    closed_port = free_port()
    with Consumer(acknowledge) as alive:
        client.register(app, "a-closed", closed_port)
        client.register(app, "b-alive", alive.port)

        client.ask(type="queue", appid=app, msgid=message, content="x")  # ties go to the first by its id
        assert alive.next().msgid == message

        with Consumer(acknowledge, port=closed_port) as back:
            client.register(app, "a-closed", closed_port)
            for _ in range(4):
                client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")
            wait_until(lambda: alive.count + back.count == 5, "all are pushed", DEADLINE_S)
            assert back.count == 2


def test_k23_a_recipient_that_does_not_pong_is_lost(server: RealServer, connect: Connect) -> None:
    client, app = connect(), a_name("app")
    with (
        Consumer(acknowledge, says_pong=False) as mute,
        Consumer(acknowledge) as alive,
        SkmqNode(server.url, heartbeat=100, pong_timeout=30_000),
    ):
        client.register(app, "a-mute", mute.port)
        client.register(app, "b-alive", alive.port)
        wait_until(lambda: _status(server, app, "a-mute") == b"lost", "it is lost", DEADLINE_S)

        for _ in range(4):
            client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")
        wait_until(lambda: alive.count == 4, "all are pushed", DEADLINE_S)

        assert mute.count == 0
        assert _status(server, app, "b-alive") == b"alive"


def _status(server: RealServer, app: str, recipient: str) -> bytes:
    with server.client() as raw:
        entry = raw.hget(f"mqw:{{skmq.{app.replace('-', '--')}}}:recipients", recipient)
    return (entry or b"").split(b" ")[0]


def test_k25_connections_are_let_in_at_the_rate(server: RealServer) -> None:
    answered: list[float] = []

    def come(address: tuple[str, int]) -> None:
        with Plain(address) as client:
            client.send(b"ping\r\n\r\n")
            assert client.read() == b"pong"
            answered.append(time.monotonic())

    with SkmqNode(server.url, namespace="k25", rate=10) as slow:
        visitors = [threading.Thread(target=come, args=(slow.address,)) for _ in range(16)]
        began = time.monotonic()
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join(DEADLINE_S)

    assert len(answered) == 16  # nobody was refused
    assert max(answered) - began >= 0.4  # at the most one second's worth was saved up while nobody came


def test_k26_a_message_waits_for_its_first_recipient(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    client.ask(type="queue", appid=app, msgid=message, content="x")

    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)

        assert consumer.next().msgid == message


def test_a_recipient_that_moves_to_another_app_leaves_the_first(connect: Connect) -> None:
    client, old, new, recipient = connect(), a_name("app"), a_name("app"), a_name("r")
    with Consumer(acknowledge) as mover, Consumer(acknowledge) as stayer:
        client.register(old, recipient, mover.port)
        client.register(old, a_name("r"), stayer.port)
        client.register(new, recipient, mover.port)

        for _ in range(3):
            client.ask(type="queue", appid=old, msgid=a_name("m"), content="x")
        wait_until(lambda: stayer.count == 3, "all are pushed", DEADLINE_S)

        assert mover.count == 0


def test_a_recipient_that_hangs_holds_up_nobody_else(connect: Connect) -> None:
    client, app, other = connect(), a_name("app"), a_name("app")
    with Consumer() as hanging, Consumer(acknowledge) as quick:
        client.register(app, a_name("r"), hanging.port)
        client.register(other, a_name("r"), quick.port)
        for _ in range(50):
            client.ask(type="queue", appid=app, msgid=a_name("m"), content="x")

        for _ in range(20):
            client.ask(type="queue", appid=other, msgid=a_name("m"), content="x")
        wait_until(lambda: quick.count == 20, "the quick one got all", DEADLINE_S)


def test_feedback_on_a_topic_is_attributed_by_rid(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer() as first, Consumer() as second:
        client.register(app, "one", first.port)
        client.register(app, "two", second.port)
        client.ask(type="topic", appid=app, msgid=message, content="x")
        pushes = [first.next(), second.next()]

        by_rid = [client.ask(type="ack", msgid=message, rid=rid) for rid in ("two", "one")]
        wait_until(lambda: is_free(client, app, message), "both copies are settled", DEADLINE_S)

        assert by_rid == [{"status": "ack", "content": ""}] * 2
        assert Counter(push.msgid for push in pushes) == {message: 2}


def test_an_ack_at_another_node_counts(server: RealServer, connect: Connect) -> None:
    client, app, message, news = connect(), a_name("app"), a_name("m"), a_name("m")

    def arrived(pushed: Pushed) -> None:
        pushed.say("arrived")

    with SkmqNode(server.url, ack_timeout=30_000) as other_node, Consumer(arrived) as consumer:
        client.register(app, "one", consumer.port)
        client.ask(type="queue", appid=app, msgid=message, content="x")
        client.ask(type="topic", appid=app, msgid=news, content="y")
        seen: set[str] = (
            set()
        )  # while the machine is busy a node may be taken for dead, and a message sent twice
        while seen != {message, news}:
            seen.add(consumer.next().msgid)

        for address in (other_node.address, client.socket.getpeername()):  # whichever did not push it
            with Plain(address) as foreign:
                assert foreign.ask(type="ack", msgid=message) == {"status": "ack", "content": ""}
                assert foreign.ask(type="ack", msgid=news, rid="one") == {"status": "ack", "content": ""}

        wait_until(lambda: is_free(client, app, message), "it is settled", DEADLINE_S)
        wait_until(lambda: is_free(client, app, news), "the topic is settled", DEADLINE_S)
