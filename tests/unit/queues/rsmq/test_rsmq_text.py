"""A task as a JSON text: readable for every language, exact for ours, refused when it is anything else."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.message import NO_TASK
from mqworker.model.names import MessageId, TaskName
from mqworker.queues.rsmq.text import TaskText, decode_text, encode_text

TASK = TaskName("shop.send_mail")


def body(*args: Any, **kwargs: Any) -> bytes:  # noqa: ANN401 - as a task takes them
    packed: bytes = msgpack.packb([list(args), kwargs])
    return packed


def test_a_task_is_written_as_any_program_would() -> None:
    text = encode_text(TaskText(TASK, body("ann", retries=3)))

    assert json.loads(text) == {"task": "shop.send_mail", "args": ["ann"], "kwargs": {"retries": 3}}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"task": "shop.send_mail"}', body()),
        ('{"task": "shop.send_mail", "args": [1, null, true]}', body(1, None, True)),  # noqa: FBT003 - data
        ('{"kwargs": {"a": {"b": [1.5]}}, "task": "shop.send_mail"}', body(a={"b": [1.5]})),
    ],
)
def test_arguments_may_be_left_out(text: str, wanted: bytes) -> None:
    assert decode_text(text.encode()) == TaskText(TASK, wanted)


@given(st.binary(max_size=300), st.sampled_from([TASK, NO_TASK]))
def test_any_body_comes_out_as_it_went_in(content: bytes, task: TaskName) -> None:
    text = TaskText(task, content, MessageId("id-1"))

    assert decode_text(encode_text(text)) == text


@pytest.mark.parametrize(
    "content",
    [
        body(b"bytes"),
        body({1: "a number as a key"}),
        body(float("nan")),
        body(msgpack.ExtType(5, b"x")),
        b"\xdc\x00\x02\x90\x80",  # the same call in more bytes than needed
        b"x" * 1_048_576,
    ],
)
def test_what_json_cannot_say_travels_as_base64(content: bytes) -> None:
    text = encode_text(TaskText(TASK, content))

    assert json.loads(text).keys() == {"task", "body"}
    assert decode_text(text).body == content


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "{}",
        '"shop.send_mail"',
        '{"task": ""}',
        '{"task": 7}',
        '{"task": "os.system; ls"}',
        '{"task": "t", "args": {}}',
        '{"task": "t", "kwargs": []}',
        '{"task": "t", "kwarg": {}}',
        '{"task": "t", "id": ""}',
        '{"task": "t", "body": "?"}',
        '{"task": "t", "body": 1}',
        '{"task": "t", "body": "", "args": []}',
        '{"task": "a", "task": "b"}',
        '{"task": "t", "args": [NaN]}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidMessage):
        decode_text(text.encode())
