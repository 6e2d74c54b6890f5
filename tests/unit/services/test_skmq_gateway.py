"""The gateway's decisions without a socket: requests, replies, the pace, attribution, retries, options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mqworker.errors import ConfigurationError
from mqworker.gateway import Ack, Bury, Delivery, Park, RetryAt
from mqworker.model.instant import After
from mqworker.model.names import MessageId
from mqworker.queues.skmq.frame import Frame
from mqworker.queues.skmq.names import COPY, TO_ALL, TO_ONE
from mqworker.queues.skmq.settlement import SILENCE, RetryRules, look_again, settlement_of
from mqworker_services.gateways.skmq import replies
from mqworker_services.gateways.skmq.options import SkmqOptions, options_of, read_conf, read_dbconf
from mqworker_services.gateways.skmq.pushes import Push, attributed, push_of
from mqworker_services.gateways.skmq.request_handler import Throttle
from mqworker_services.gateways.skmq.requests import (
    Feedback,
    MessageFeedback,
    Refused,
    Register,
    Send,
    request_of,
)

RULES = RetryRules(retry_times=2, retry_delay_ms=100)


def a_delivery(id_: str = "m~q1", task: str = TO_ONE, failures: int = 0) -> Delivery:
    return Delivery(1, MessageId(id_), task, b"", 0, failures=failures)  # type: ignore[arg-type]


def a_copy(recipient: str, host: str = "10.0.0.1") -> Push:
    push = push_of("skmq.a", a_delivery(f"m~t1~{recipient}", COPY))
    push.host = host
    return push


def test_a_message_frame_becomes_a_request_to_store_it() -> None:
    assert request_of(Frame("queue", "a", "m", b"x")) == Send(TO_ONE, "skmq.a", "m", "m~q", b"x")
    assert request_of(Frame("topic", "a", "m", b"x")) == Send(TO_ALL, "skmq.a", "m", "m~t", b"x")


def test_feedback_names_the_recipient_by_its_key() -> None:
    assert request_of(Frame("ack", msgid="m", rid="r 1")) == MessageFeedback(Feedback.ACK, "m", "r=201")


@pytest.mark.parametrize(
    ("frame", "status", "content"),
    [
        (Frame("queue", "a", ""), "reject", "msgid required"),
        (Frame("queue", "", "m"), "reject", "appid required"),
        (Frame("resp", "a", "m"), "error", "unknown type: resp"),
        (Frame("register", content=b"{}"), "reject", "Invalid parameters: {}"),
        (Frame("arrived", msgid=""), "error", ""),
        (Frame("ack", msgid="\udcff"), "ack", ""),
    ],
)
def test_what_cannot_be_done_has_its_answer(frame: Frame, status: str, content: str) -> None:
    assert request_of(frame) == Refused(replies.Answer(status, content))


def test_a_name_that_cannot_be_kept_is_rejected_by_name() -> None:
    request = request_of(Frame("queue", "a", "m" * 200))

    assert isinstance(request, Refused)
    assert request.answer.content.startswith("Invalid parameters: msgid is")


def test_a_recipient_is_registered_under_its_app() -> None:
    about = {"id": "r", "app_id": "a", "host": "::1", "port": "8080", "weight": 3}
    request = request_of(Frame("register", content=json.dumps(about).encode()))

    assert isinstance(request, Register)
    assert (request.recipient.queue, request.recipient.key, request.recipient.port) == ("skmq.a", "r", 8080)


def test_replies_are_what_the_document_says_to_the_letter() -> None:
    assert (
        replies.encoded(replies.STORED)
        == b'type=resp\r\ncontent={"status":"ack","content":"Message enqueue successful"}\r\n\r\n'
    )
    assert replies.already_exists("7").content == "message already exists, ID: 7, Status "
    assert b"msgid=7" in replies.encoded(replies.ACK, "7")


def test_the_first_never_waits_and_the_others_come_at_the_rate() -> None:
    pace = Throttle(10, now_s=100.0)

    waits = [round(pace.take(1, 100.0), 3) for _ in range(4)]

    assert waits == [0.0, 0.1, 0.2, 0.3]


def test_a_quiet_time_saves_up_one_second_at_the_most() -> None:
    pace = Throttle(10, now_s=0.0)

    waits = [pace.take(1, 60.0) for _ in range(12)]

    assert waits[:11] == [0.0] * 11
    assert waits[11] > 0


def test_a_big_request_is_charged_to_the_next() -> None:
    pace = Throttle(10, now_s=0.0)

    assert pace.take(50, 0.0) == 0.0
    assert pace.take(1, 0.0) == 5.0


def test_feedback_on_a_topic_goes_to_the_copy_of_that_recipient() -> None:
    copies = [a_copy("one"), a_copy("two"), a_copy("three", host="10.0.0.2")]

    assert attributed(copies, "two", "10.0.0.1") is copies[1]
    assert attributed(copies, "", "10.0.0.2") is copies[2]
    assert attributed(copies, "", "10.0.0.1") is copies[0]  # the oldest at that host
    assert attributed(copies, "", "10.0.0.9") is None
    assert attributed(copies, "four", "10.0.0.1") is None


def test_feedback_on_a_message_for_one_needs_no_sender() -> None:
    push = push_of("skmq.a", a_delivery())

    assert attributed([push], "", "10.0.0.9") is push
    assert attributed([], "", "10.0.0.9") is None


def test_a_message_is_pushed_at_most_once_more_than_it_is_retried() -> None:
    ends = [settlement_of("reject", a_delivery(failures=failures), RULES) for failures in range(3)]

    assert [type(end) for end in ends] == [RetryAt, RetryAt, Bury]
    assert isinstance(ends[0], RetryAt)
    assert ends[0].due == After(100)


def test_an_error_buries_at_once_and_silence_is_a_failure() -> None:
    assert isinstance(settlement_of("error", a_delivery(), RULES), Bury)
    assert isinstance(settlement_of(SILENCE, a_delivery(), RULES), RetryAt)
    assert isinstance(settlement_of("ack", a_delivery(failures=9), RULES), Ack)


def test_a_topic_is_looked_at_less_and_less_often() -> None:
    delivery = a_delivery("m~t1", TO_ALL)
    delivery.deliveries = 20

    first, late = look_again(a_delivery("m~t1", TO_ALL)), look_again(delivery)

    assert isinstance(first, Park)
    assert isinstance(late, Park)
    assert (first.due, late.due) == (After(200), After(30_000))


def test_the_files_of_the_document_are_read(tmp_path: Path) -> None:
    conf, dbconf = tmp_path / "conf.json", tmp_path / "dbconf.json"
    conf.write_text(
        '{"retry_times": 5, "ack_timeout": 60000, "rate": 1000,'
        ' "listener_host": "127.0.0.1", "listener_port": "1734"}'
    )
    dbconf.write_text('{"address": "127.0.0.1:6379", "password": "a/b", "db": 1, "max_idle": 0}')

    options, place = read_conf(conf)

    assert options_of(options) == SkmqOptions()
    assert place == "127.0.0.1:1734"
    assert read_dbconf(dbconf) == "redis://:a%2Fb@127.0.0.1:6379/1"
    assert read_dbconf(tmp_path / "missing.json") == "redis://127.0.0.1:6379/1"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"rate": 0}, "rate"),
        ({"rate": -5}, "rate"),
        ({"ack_timeout": "soon"}, "ack_timeout"),
        ({"retry_times": True}, "retry_times"),
        ({"dead_letter": "burn"}, "dead_letter"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(given: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        options_of(given)


@pytest.mark.parametrize("text", ["{", "[]", None])
def test_a_conf_file_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "conf.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigurationError, match=r"conf\.json"):
        read_conf(path)
