"""Which tasks wait for each other, and what a snapshot tells of it."""

from hypothesis import given
from hypothesis import strategies as st

from mqworker.model.waits import WaitView, circular, waits_in


def a_wait(message: str, awaited: str) -> WaitView:
    return WaitView("n", "worker:0", "task", message, "mail", awaited, 6_000)


def test_those_that_wait_for_themselves_in_the_end_are_circular() -> None:
    circle = [a_wait("a", "b"), a_wait("b", "c"), a_wait("c", "a")]
    others = [a_wait("d", "a"), a_wait("e", "f")]

    assert circular([*circle, *others]) == circle


def test_of_several_awaited_messages_one_that_leads_back_is_enough() -> None:
    waits = [a_wait("a", "x"), a_wait("a", "b"), a_wait("b", "a")]

    assert circular(waits) == waits[1:]


def test_what_a_worker_tells_is_read_and_what_is_foreign_is_left_out() -> None:
    told = ["parent", "id-1", "mail", "id-2", 6_000]
    facts = {"waits": [told, ["parent"], 7, ["p", "i", "a b", "x", 1], ["p", "i", "mail", "\xff", 1]]}

    assert waits_in(facts, "n", "worker:0") == [
        WaitView("n", "worker:0", "parent", "id-1", "mail", "id-2", 6_000)
    ]
    assert waits_in({"waits": 7}, "n", "w") == []


@given(pairs=st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=12))
def test_an_order_without_a_circle_has_none(pairs: list[tuple[str, str]]) -> None:
    forward = [a_wait(one, other) for one, other in pairs if one < other]

    assert circular(forward) == []
