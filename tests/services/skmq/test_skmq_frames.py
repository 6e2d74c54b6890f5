"""The codec and the requests over real sockets: cases K01 to K13, K24, K27's other half."""

from __future__ import annotations

import json
import os

import pytest

from tests.services.skmq.conftest import Connect
from tests.services.skmq.plain_sockets import Consumer, Plain, a_name, acknowledge, frame
from tests.services.skmq.skmq_node import SkmqNode

STORED = {"status": "ack", "content": "Message enqueue successful"}


def test_k01_a_ping_is_answered_with_exactly_a_pong(connect: Connect) -> None:
    client = connect()

    client.send(b"ping\r\n\r\n")
    whole = client.read_exactly(8)
    client.send_byte_by_byte(b"ping\r\n\r\n")
    in_pieces = client.read_exactly(8)

    assert (whole, in_pieces) == (b"pong\r\n\r\n", b"pong\r\n\r\n")


def test_k02_a_message_is_acknowledged_once_it_is_stored(connect: Connect) -> None:
    reply = connect().ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="hello")

    assert reply == STORED


def test_k03_frames_in_one_segment_and_one_in_many_are_answered_in_order(connect: Connect) -> None:
    client, app = connect(), a_name("app")
    known, other, third = a_name("m"), a_name("m"), a_name("m")
    client.ask(type="queue", appid=app, msgid=known, content="x")

    client.send(
        frame(type="queue", appid=app, msgid=known, content="y")
        + frame(type="queue", appid=app, msgid=other, content="z")
    )
    client.send_byte_by_byte(frame(type="queue", appid=app, msgid=third, content="z"))

    assert client.reply()["content"].startswith(f"message already exists, ID: {known}")
    assert [client.reply(), client.reply()] == [STORED, STORED]


def test_k04_fields_come_in_any_order_with_others_between(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)

        reply = client.ask(content="a=b=c", colour="red", msgid=message, type="queue", appid=app)
        pushed = consumer.next()

    assert reply == STORED
    assert pushed.fields == {
        "type": b"push",
        "appid": app.encode(),
        "msgid": message.encode(),
        "content": b"a=b=c",
    }


def test_k05_a_second_message_of_the_same_id_is_dropped(connect: Connect) -> None:
    client, app, message = connect(), a_name("app"), a_name("m")
    client.ask(type="queue", appid=app, msgid=message, content="first")

    again = client.ask(type="queue", appid=app, msgid=message, content="second")
    elsewhere = client.ask(type="queue", appid=a_name("app"), msgid=message, content="third")
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)
        pushed = consumer.next()
        client.ask(type="queue", appid=app, msgid=a_name("m"), content="last")
        last = consumer.next()

    assert again == {"status": "ack", "content": f"message already exists, ID: {message}, Status "}
    assert elsewhere == again  # a message id means the same in all apps
    assert pushed.fields["content"] == b"first"
    assert last.fields["content"] == b"last"


@pytest.mark.parametrize("size", [0, 900, 1_024, 50_000, 1_048_576])
def test_k07_content_of_any_size_arrives_as_it_was_sent(connect: Connect, size: int) -> None:
    content = os.urandom(size).replace(b"\r\n", b"..")
    client, app = connect(), a_name("app")
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)

        reply = client.ask(type="queue", appid=app, msgid=a_name("m"), content=content)
        pushed = consumer.next()

    assert reply == STORED
    assert pushed.fields["content"] == content


def test_k08_with_its_length_content_may_hold_ends_of_lines(connect: Connect) -> None:
    content = b"line 1\r\nline=2\r\n\r\ntype=queue\r\n\r\n"
    client, app = connect(), a_name("app")
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("r"), consumer.port)

        client.send(
            frame(type="queue", appid=app, msgid=a_name("m"), length=str(len(content)), content=content)
        )
        reply = client.reply()
        pushed = consumer.next()

    assert reply == STORED
    assert pushed.fields["content"] == content
    assert pushed.fields["length"] == b"%d" % len(content)


def test_k09_without_its_length_content_ends_at_the_first_line(connect: Connect) -> None:
    client = connect()

    client.send(frame(type="queue", appid=a_name("app"), msgid=a_name("m"), content="one\r\nline2=zz"))
    usable = client.reply()
    client.send(frame(type="queue", appid=a_name("app"), msgid=a_name("m"), content="one\r\ntwo"))
    broken = client.reply()

    assert usable == STORED
    assert broken == {"status": "error", "content": "malformed frame"}
    assert client.read() == b""


def test_k10_a_frame_without_a_type_leaves_nothing_behind(connect: Connect) -> None:
    client, app = connect(), a_name("app")

    client.send(frame(appid=app, msgid="leaked", content="leaked") + frame(type="queue", appid=app))

    assert client.reply() == {"status": "reject", "content": "msgid required"}


def test_k11_half_a_frame_at_the_end_is_dropped(connect: Connect, node: SkmqNode) -> None:
    app, message = a_name("app"), a_name("m")
    half = connect()

    half.send(frame(type="queue", appid=app, msgid=message, content="x")[:-2])
    half.socket.shutdown(1)

    assert half.read() == b""
    with Plain(node.address) as other:
        assert other.ask(type="queue", appid=app, msgid=message, content="y") == STORED


@pytest.mark.parametrize("line", [b"hello", b"pong", b"GET / HTTP/1.1", b"\x16\x03\x01\x02"])
def test_k12_a_line_that_is_no_field_ends_the_connection_and_no_other(connect: Connect, line: bytes) -> None:
    broken, other = connect(), connect()

    broken.send(line + b"\r\n")

    assert broken.reply() == {"status": "error", "content": "malformed frame"}
    assert broken.read() == b""
    assert other.ask(type="queue", appid=a_name("app"), msgid=a_name("m"), content="x") == STORED


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "{",
        '{"id":"r","app_id":"a","host":"127.0.0.1","port":8080}',
        '{"id":"r","app_id":"a","host":"127.0.0.1","port":"8080","weight":"1"}',
        '{"id":"","app_id":"a","host":"127.0.0.1","port":"8080"}',
    ],
)
def test_k13_a_registration_that_does_not_fit_is_rejected(connect: Connect, content: str) -> None:
    reply = connect().ask(type="register", content=content)

    assert reply == {"status": "reject", "content": f"Invalid parameters: {content}"}


def test_k24_feedback_on_unknown_messages(connect: Connect) -> None:
    client = connect()

    replies = {
        feedback: client.ask(type=feedback, msgid="nobody-knows")
        for feedback in ("ack", "arrived", "reject", "error")
    }

    assert {feedback: reply["status"] for feedback, reply in replies.items()} == {
        "ack": "ack",
        "arrived": "error",
        "reject": "ack",
        "error": "ack",
    }
    assert {reply["content"] for reply in replies.values()} == {""}


def test_requests_that_lack_something_say_what(connect: Connect) -> None:
    client = connect()

    assert client.ask(type="queue", appid="a", content="x") == {
        "status": "reject",
        "content": "msgid required",
    }
    assert client.ask(type="topic", msgid="m", content="x") == {
        "status": "reject",
        "content": "appid required",
    }
    assert client.ask(type="push", msgid="m") == {"status": "error", "content": "unknown type: push"}


def test_odd_names_are_kept_to_the_letter(connect: Connect) -> None:
    app, message = a_name("订单 app/{x}"), a_name("消息 {1}~=?")
    client = connect()
    with Consumer(acknowledge) as consumer:
        client.register(app, a_name("收件人"), consumer.port)

        client.ask(type="queue", appid=app, msgid=message, content="x")
        pushed = consumer.next()

    assert (pushed.fields["appid"].decode(), pushed.fields["msgid"].decode()) == (app, message)
    assert json.loads(json.dumps(message)) == message
