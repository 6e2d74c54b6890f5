"""The verbs of topics at the broker's node: one script each, whatever the process that asks."""

from __future__ import annotations

import pytest

from mqworker.actors.gateway.verbs.topics import topic_verbs
from mqworker.actors.gateway.verbs.verb import LARGEST_GROUP
from mqworker.errors import InvalidArgument
from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.calls import TopicRecord
from mqworker.store.script import Call

PEER = "127.0.0.1:5467"


class Noted:
    """Counts calls of it."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("verb", "arguments", "script", "answer", "result"),
    [
        ("publish", ("k", b"x"), "publish", ["an id"], "an id"),
        ("subscribe", ("k", "c", PEER), "subscribe", None, None),
        ("unsubscribe", ("k", "c"), "unsubscribe", True, True),
        (
            "observe",
            ("c", PEER),
            "observe",
            [TopicRecord("k", "id", "t", b"x")],
            [["k", "id", "t", b"x"]],
        ),
    ],
)
def test_each_verb_is_one_script(
    verb: str, arguments: tuple[str | bytes, ...], script: str, answer: object, result: object
) -> None:
    """A second step, or none, would change the numbering by which a repeated call is recognised."""
    subscribed = Noted()
    procedure = topic_verbs(TopicOptions(), subscribed)[verb].begin(*arguments)

    step = next(procedure)
    with pytest.raises(StopIteration) as end:
        procedure.send(answer)

    assert isinstance(step, Call)
    assert step.script.name == script
    assert end.value.value == result
    assert subscribed.count == (verb == "subscribe")


def test_publishes_to_one_key_are_one_script() -> None:
    publish = topic_verbs(TopicOptions(), Noted())["publish"]
    assert publish.together is not None

    procedure = publish.together([("k", b"1"), ("k", b"2"), ("k", b"3")])
    step = next(procedure)
    with pytest.raises(StopIteration) as end:
        procedure.send(["a", "b", "c"])

    assert isinstance(step, Call)
    assert step.script.name == "publish"
    assert end.value.value == ["a", "b", "c"]


@pytest.mark.parametrize(("size", "weight"), [(0, 1), (100, 1), (1_048_576, LARGEST_GROUP // 4)])
def test_a_large_payload_weighs_more(size: int, weight: int) -> None:
    assert topic_verbs(TopicOptions(), Noted())["publish"].weigh(("k", bytes(size))) == weight


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("publish", ("", b"x")),
        ("publish", ("k", None)),
        ("publish", ("k", bytes(1_048_577))),
        ("subscribe", ("k", "c", "no_good")),
        ("observe", (7, PEER)),
    ],
)
def test_what_is_not_accepted_is_refused_before_anything_is_sent(
    verb: str, arguments: tuple[object, ...]
) -> None:
    procedure = topic_verbs(TopicOptions(), Noted())[verb].begin(*arguments)

    with pytest.raises(InvalidArgument, match="accepted"):
        next(procedure)
