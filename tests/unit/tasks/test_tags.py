"""Tags: few short words, on top of those of the task; calls without any are stored as before."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import CallOptions, decode_call, encode_call
from mqworker.model.event import COLUMNS, decode_block, settled_block
from mqworker.model.names import MOST_TAGS, MessageId, TaskName, tag_names
from mqworker.model.settlement import Ack, Run
from mqworker.model.value_codec import pack
from mqworker.tasks.options import Wishes, plan_of, plan_with, task_options


def test_tags_of_the_call_come_on_top_of_those_of_the_task() -> None:
    plan = plan_with(plan_of(task_options(tags=["shop"])), Wishes(tags=["acme", "shop"], timeout=5))

    assert plan.extra == CallOptions(timeout_ms=5_000, tags=("shop", "acme"))


def test_a_task_without_tags_has_no_options_in_its_calls() -> None:
    assert plan_of(task_options()).extra is None
    assert plan_with(plan_of(task_options()), Wishes(priority=3)).extra is None


def test_tags_arrive_with_the_call() -> None:
    body = encode_call([1], {}, CallOptions(tags=("acme", "import")))

    assert decode_call(body).tags == ("acme", "import")


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        ("acme", "a list of texts"),
        (7, "a list of texts"),
        (["a b"], "1 to 64 characters"),
        ([""], "1 to 64 characters"),
        (["x" * 65], "1 to 64 characters"),
        ([7], "1 to 64 characters"),
        (["<script>"], "1 to 64 characters"),
        ([f"t{n}" for n in range(MOST_TAGS + 1)], f"up to {MOST_TAGS}"),
    ],
)
def test_what_is_no_tag_is_refused_with_what_is_accepted(tags: object, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        tag_names(tags)


@pytest.mark.parametrize("tags", ["acme", [7], {"a": 1}, ["a b"], None])
def test_tags_that_somebody_else_wrote_make_the_message_invalid(tags: object) -> None:
    with pytest.raises(InvalidMessage):
        decode_call(pack([[], {}, {"tags": tags}]))  # type: ignore[list-item]


def test_the_event_of_a_run_tells_its_tags_and_without_any_stays_in_columns() -> None:
    run = Run("worker:0", "n", 1_500, 2.0)
    plain = Delivery(1, MessageId("a"), TaskName("t"), b"", enqueued_at_ms=1_000)
    tagged = Delivery(2, MessageId("b"), TaskName("t"), b"", enqueued_at_ms=1_000, tags=("acme",))

    assert settled_block([Ack(plain, run=run)]).codec == COLUMNS
    block = settled_block([Ack(plain, run=run), Ack(tagged, run=run)])
    first, second = decode_block(block.codec, block.data)

    assert "tags" not in first
    assert second["tags"] == ["acme"]
