"""Messages of Celery as they are read and written, without a server."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.clock import SystemClock
from mqworker.model.envelope import decode_call, encode_call
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName
from mqworker.queues.catalogue import CeleryQueue, as_plain, from_plain, public_facts
from mqworker.queues.celery.keys import CeleryKeys
from mqworker.queues.celery.message import MessageRefused, UnknownName, read_message
from mqworker.queues.celery.outgoing import message_text, protocol_headers
from mqworker.queues.celery.sending import text_of
from mqworker.queues.celery.tasks_left import TasksLeft
from mqworker.queues.celery.values import from_kombu, to_kombu

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda name: name != "__type__")
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def a_text(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever a stranger writes
    headers = protocol_headers(task="shop.count", task_id="a")
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    found: dict[str, Any] = json.loads(message_text(headers, [[1], {}, embed], queue="celery"))
    return {**found, **changes}


@given(VALUES)
def test_values_come_back_as_they_were(value: object) -> None:
    assert from_kombu(json.loads(json.dumps(to_kombu(value)))) == value


@given(st.lists(VALUES, max_size=4), st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_call_of_ours_is_read_as_the_very_same_call(args: list[object], kwargs: dict[str, object]) -> None:
    body = encode_call(args, kwargs)
    message = Message(MessageId("a"), body, TaskName("shop.count"), due=After(1_000))

    read = read_message(text_of(message, "celery", SystemClock().now_ms()).encode())

    assert (read.task, read.body, read.task_id) == ("shop.count", body, "a")
    assert read.eta_ms is not None


@pytest.mark.parametrize("value", [{1, 2}, (1, 2), {1: "number"}, frozenset("a")])
def test_what_json_would_change_goes_along_exactly(value: object) -> None:
    body = encode_call([value], {})

    text = text_of(Message(MessageId("a"), body, TaskName("t")), "celery", 0)

    assert read_message(text.encode()).body == body


@given(st.binary() | st.text().map(str.encode))
def test_no_bytes_do_more_than_being_refused(raw: bytes) -> None:
    with pytest.raises((InvalidMessage, MessageRefused, UnknownName)):
        read_message(raw)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_whatever_stands_in_the_place_of_a_part_is_read_or_refused(data: st.DataObject) -> None:
    text = a_text()
    where = data.draw(
        st.sampled_from(["headers", "properties", "body", "content-type", "one header", "inside"])
    )
    value = data.draw(ANY_JSON)
    if where == "one header":
        text["headers"][data.draw(st.sampled_from(sorted(text["headers"])))] = value
    elif where == "what follows":
        embed = {data.draw(st.sampled_from(["callbacks", "errbacks", "chain", "chord"])): value}
        text["body"] = base64.b64encode(json.dumps([[], {}, embed]).encode()).decode()
    elif where == "inside":
        text["body"] = base64.b64encode(json.dumps(value).encode()).decode()
    else:
        text[where] = value

    try:
        read = read_message(json.dumps(text).encode())
    except (InvalidMessage, MessageRefused, UnknownName):
        return
    assert decode_call(read.body)


def test_msgpack_is_read_within_the_same_bounds() -> None:
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    for value in (deep, [[0] * 60_000, {}, {}]):
        packed = base64.b64encode(msgpack.packb(value)).decode()
        text = a_text(body=packed, **{"content-type": "application/x-msgpack"})
        with pytest.raises(InvalidMessage):
            read_message(json.dumps(text).encode())


def test_values_of_kombu_are_those_of_python() -> None:
    marked = {"__type__": "uuid", "__value__": {"hex": "711de21ef6684a98aeef2bb3c5a00b47"}}

    assert from_kombu(marked) == UUID("711de21ef6684a98aeef2bb3c5a00b47")
    assert from_kombu({"__type__": "date", "__value__": "2026-02-03"}) == date(2026, 2, 3)
    assert from_kombu({"__type__": "decimal", "__value__": "1.50"}) == Decimal("1.50")
    assert from_kombu({"__type__": "bytes", "__value__": "ü"}) == "ü".encode()
    moment = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert from_kombu({"__type__": "datetime", "__value__": moment.isoformat()}) == moment


@pytest.mark.parametrize(
    ("priority", "list_"),
    [
        (0, "celery"),
        (2, "celery"),
        (3, "celery\x06\x163"),
        (8, "celery\x06\x166"),
        (99, "celery\x06\x169"),
        (-1, "celery"),
    ],
)
def test_a_priority_has_the_list_that_kombu_chooses(priority: int, list_: str) -> None:
    assert CeleryKeys("", "celery").list_of("celery", priority) == list_


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"priority_steps": (3, 0)}, "priority_steps is"),
        ({"priority_steps": ()}, "priority_steps is"),
        ({"priority_steps": "0369"}, "priority_steps is"),
        ({"results": "yes"}, "results is"),
        ({"prefix": "x" * 200}, "prefix is"),
        ({"lease": 0}, "lease"),
        ({"poll": 0}, "poll is"),
        ({"result_db": -1}, "result_db"),
    ],
)
def test_an_option_that_cannot_be_is_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        CeleryQueue(**options)


def test_the_model_survives_the_mail() -> None:
    model = CeleryQueue(prefix="app:", priority_steps=range(10), result_db=1)

    assert from_plain(msgpack.unpackb(msgpack.packb(as_plain(model)))) == model
    assert public_facts(model) == {"model": "Celery", "prefix": "app:", "steps": "0 1 2 3 4 5 6 7 8 9"}


def test_only_names_that_a_list_shows_are_left_to_celery_and_not_too_many() -> None:
    left = TasksLeft(SystemClock())

    assert left.note_task("shop.old", After(60_000))
    assert not left.note_task('shop"old', After(60_000))
    assert not left.note_task("büro", After(60_000))
    assert not left.note(b"{}")
    for number in range(TasksLeft.MOST):
        left.note_task(f"t{number}", After(60_000))
    assert len(left.names()) == TasksLeft.MOST
    assert left.note_task("shop.old", After(0))
    assert "shop.old" not in left.names()
