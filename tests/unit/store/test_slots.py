"""Which node owns a key, and where a command goes that a node did not take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from redis import exceptions

from mqworker.queues.work.keys import beats_keys
from mqworker.store.link.address import HostPort
from mqworker.store.link.server_errors import ServerName
from mqworker.store.link.slots import (
    Send,
    SlotRange,
    SlotTable,
    commands_of,
    next_sends,
    parse_slots,
    replies_of,
    slot_of,
    unsettled,
)

A, B, C = HostPort("a", 1), HostPort("b", 2), HostPort("c", 3)
TABLE = SlotTable((SlotRange(0, 99, A), SlotRange(200, 16383, B)))


def test_owner_is_found_and_gaps_have_none() -> None:
    assert [TABLE.owner(slot) for slot in (0, 99, 100, 199, 200, 16383)] == [A, A, None, None, B, B]
    assert SlotTable(()).owner(0) is None
    assert TABLE.primaries == (A, B)


@given(st.lists(st.tuples(st.integers(0, 16383), st.sampled_from([A, B, C])), max_size=8))
def test_moved_slots_and_only_those_change_their_owner(moves: list[tuple[int, HostPort]]) -> None:
    table = TABLE
    for slot, place in moves:
        table = table.moved(slot, place)

    expected = dict(moves)
    for slot in {0, 99, 100, 200, 16383} | {
        s + d for s in expected for d in (-1, 0, 1) if 0 <= s + d < 16384
    }:
        assert table.owner(slot) == expected.get(slot, TABLE.owner(slot))


def test_slots_are_parsed_and_a_node_without_a_name_means_itself() -> None:
    rows = [[200, 16383, [b"b", 2, b"id", []], [b"replica", 9]], [0, 99, [None, 1]], [100, 100, [b"?", 3]]]

    table = parse_slots(rows, HostPort("asked", 7))

    assert table.ranges == (
        SlotRange(0, 99, HostPort("asked", 1)),
        SlotRange(100, 100, HostPort("asked", 3)),
        SlotRange(200, 16383, B),
    )


def test_keys_with_one_hash_tag_share_a_slot() -> None:
    assert slot_of("{q}:ready") == slot_of("{q}:leases") == slot_of("q")
    assert slot_of("foo") == 12182


def test_only_what_was_not_executed_is_sent_again() -> None:
    send = Send(A, (0, 1, 2, 3, 4))
    raw = [
        b"OK",
        exceptions.MovedError("7 b:2"),
        exceptions.AskError("7 c:3"),
        exceptions.TryAgainError("later"),
        exceptions.MovedError("7 b:2"),
    ]

    sends, moves = next_sends(send, raw)

    assert sends == [Send(B, (1, 4)), Send(C, (2,), is_asking=True), Send(A, (3,))]
    assert moves == [(7, B), (7, B)]


def test_endless_redirections_are_unavailable_and_tell_what_ran() -> None:
    moved = exceptions.MovedError("7 b:2")
    name = ServerName("cluster")

    nothing_ran, one_ran = unsettled([moved], name), unsettled([b"OK", moved], name)

    assert nothing_ran is not None
    assert not nothing_ran.maybe_executed
    assert one_ran is not None
    assert one_ran.maybe_executed
    assert unsettled([b"OK", exceptions.TryAgainError("later")], name) is None


def test_importing_node_is_asked_before_each_command() -> None:
    send = Send(C, (0, 2), is_asking=True)

    assert commands_of(send, [("A",), ("B",), ("C",)]) == [("ASKING",), ("A",), ("ASKING",), ("C",)]
    assert replies_of(send, [b"OK", 1, b"OK", 2]) == [1, 2]


def test_the_keys_of_beats_lie_on_every_primary_of_up_to_sixteen() -> None:
    slots = [slot_of(key) for key in beats_keys("any-namespace")]

    for primaries in range(1, 17):
        assert {slot * primaries // 16_384 for slot in slots} == set(range(primaries)), primaries
