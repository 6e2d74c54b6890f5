"""How workflows are laid out, and how an input gets into a call that was encoded long before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.envelope import CallOptions, array_header, decode_call, encode_call, with_first_argument
from mqworker.model.guard import GuardMode, member_guard, unique_guard
from mqworker.model.instant import After, At
from mqworker.model.message import Message
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.model.value_codec import pack, unpack
from mqworker.model.workflow_graph import START, Leaf, Parallel, Part, Series, lay_out

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def a(name: str) -> Part[str]:
    return Leaf(name)


def test_a_chain_follows_link_by_link() -> None:
    graph = lay_out(Series((a("first"), Leaf("second", takes_input=False), a("third"))))

    assert graph.followers == {START: [0], 0: [1], 1: [2]}
    assert [graph.calls[node].input_from for node in range(3)] == [None, None, 1]
    assert graph.end == 2


def test_a_group_after_a_group_costs_their_sum_not_their_product() -> None:
    many = tuple(a("x") for _ in range(1_000))

    graph = lay_out(Series((Parallel(many), Parallel(many))))

    assert len(graph.calls) == 2_000
    assert sum(len(each) for each in graph.followers.values()) < 5_000
    assert graph.inputs_by_join[graph.end] == [node for node in graph.calls if node > 1_000]


def test_a_group_without_members_waits_for_what_is_before_it() -> None:
    graph = lay_out(Series((a("first"), Parallel(()), a("callback"))))

    assert graph.followers == {START: [0], 0: [1], 1: [2]}
    assert graph.fields()["l1"] == "1"
    assert graph.fields()["i1"] == ""


def test_only_calls_inside_a_collecting_part_collect() -> None:
    graph = lay_out(Series((Parallel((a("x"), Series((a("y"),)))), a("z")), collects=False))
    collecting = lay_out(Series((Parallel((a("x"), Series((a("y"),))), collects=True), a("z"))))

    assert [node.collects for node in graph.calls.values()] == [False, False, False]
    assert [node.collects for node in collecting.calls.values()] == [True, True, False]
    assert {field for field in collecting.fields() if field.startswith("c")} == {"c0", "c1"}


def test_an_empty_chain_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        lay_out(Parallel((Series(()),)))


@given(VALUES, st.lists(VALUES, max_size=40))
def test_an_input_takes_the_place_of_none_in_an_encoded_call(value: object, args: list[object]) -> None:
    body = encode_call([None, *args], {"a": 1}, CallOptions(workflow="w"))

    envelope = decode_call(with_first_argument(body, pack(value)))

    assert envelope.args == unpack(pack([value, *args]))
    assert (envelope.kwargs, envelope.workflow) == ({"a": 1}, "w")


@pytest.mark.parametrize("count", [0, 15, 16, 9_000])
def test_packed_results_after_a_header_are_a_list(count: int) -> None:
    assert unpack(array_header(count) + b"".join(pack(number) for number in range(count))) == [*range(count)]


def test_a_call_without_a_place_for_its_input_is_refused() -> None:
    with pytest.raises(InvalidMessage):
        with_first_argument(encode_call([1], {}), pack(2))


@pytest.mark.parametrize("due", [None, After(5), At(1_900_000_000_000)])
def test_a_template_survives_its_way_through_plain_values(due: After | At | None) -> None:
    guard = unique_guard("k", GuardMode.FOR_A_TIME, ttl_ms=5)
    template = CallTemplate(
        QueueName("q"),
        Message(
            MessageId("template"),
            b"\x92\x91\xc0\x80",
            TaskName("t"),
            9,
            due,
            After(7),
            guard,
            None,
            "g=1/1/1",
        ),
    )

    read = template_of(template.as_fields())

    assert read == template
    made = read.called(MessageId("w~1"), member_guard(MessageId("w~1")), pack(3))
    assert (made.id, made.body, made.priority, made.due) == ("w~1", b"\x92\x91\x03\x80", 9, due)


@pytest.mark.parametrize("fields", [{}, {"queue": "q", "task": "t", "body": "!"}, {"queue": 1}])
def test_foreign_values_are_no_template(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidMessage):
        template_of(fields)
