"""Names of SKMQ as names of queues and messages, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument
from mqworker.model.names import message_id, queue_name
from mqworker.queues.skmq.names import (
    COPY,
    TO_ALL,
    TO_ONE,
    app_of_queue,
    copy_id_of,
    is_topic,
    message_id_of,
    msgid_of,
    queue_of_app,
    recipient_key,
    recipient_key_in,
)

characters = st.characters(min_codepoint=32, max_codepoint=0x2FFF, codec="utf-8")
texts = st.text(characters, min_size=1, max_size=12)
msgids = st.text(characters, min_size=1, max_size=9)  # 83 characters, all of them being escaped


@given(texts)
def test_an_app_has_a_queue_of_its_own(app: str) -> None:
    queue = queue_of_app(app)

    assert queue_name(queue) == queue
    assert app_of_queue(queue) == app


@given(msgids, texts, st.sampled_from([TO_ONE, TO_ALL]))
def test_a_message_is_found_again_in_its_id(msgid: str, recipient: str, task: str) -> None:
    id_ = message_id_of(msgid, task, "1a2b")
    copy = copy_id_of(id_, recipient_key(recipient))

    assert message_id(id_) == id_
    assert message_id(copy) == copy
    assert msgid_of(id_, task) == msgid
    assert msgid_of(copy, COPY) == msgid
    assert recipient_key_in(copy) == recipient_key(recipient)
    assert is_topic(id_) == (task == TO_ALL)


def test_plain_names_stay_readable() -> None:
    assert queue_of_app("billing") == "skmq.billing"
    assert queue_of_app("my-app") == "skmq.my--app"
    assert message_id_of("order:7", TO_ONE, "1") == "order:7~q1"


def test_a_long_recipient_has_a_short_key_of_its_own() -> None:
    keys = {recipient_key("r" * 100), recipient_key("r" * 101)}

    assert len(keys) == 2
    assert all(len(key) <= 24 for key in keys)


@pytest.mark.parametrize("msgid", ["", "x" * 84, "消" * 10, "a\nb", "a\x00b", "\ud800"])
def test_ids_that_cannot_be_kept_are_refused(msgid: str) -> None:
    with pytest.raises(InvalidArgument, match="msgid"):
        message_id_of(msgid, TO_ONE, "1")


@pytest.mark.parametrize("app", ["", "x" * 121, "a\tb", "\udcff"])
def test_apps_that_cannot_be_kept_are_refused(app: str) -> None:
    with pytest.raises(InvalidArgument, match="appid"):
        queue_of_app(app)
