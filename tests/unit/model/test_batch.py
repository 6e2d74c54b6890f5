"""Batches as values: how many are worth gathering, what a key is made of."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

import pytest

from mqworker.errors import InvalidArgument
from mqworker.model.batch import Batch, BatchTerms, QueueBatches, RowArguments, field_names


def wanting(*own: BatchTerms, others: int = 0) -> QueueBatches:
    batches = QueueBatches()
    tasks = [f"t{number}".encode() for number in range(len(own) + others)]
    batches.learn(tasks, dict(zip(tasks, own, strict=False)))
    return batches


def test_what_fills_the_batches_of_all_able_workers_is_worth_gathering() -> None:
    assert wanting(BatchTerms(500, 200, is_keyed=False)).capacity(3, 5_000) == 1_500
    assert wanting(BatchTerms(500, 200, is_keyed=False)).capacity(0, 5_000) == 0
    assert wanting(BatchTerms(500, 200, is_keyed=True)).capacity(1, 5_000) == 5_000


def test_several_tasks_of_a_queue_can_each_fill_a_batch() -> None:
    batches = wanting(BatchTerms(500, 60_000, is_keyed=False), BatchTerms(300, 60_000, is_keyed=False))

    assert batches.capacity(1, 5_000) == 800


def test_a_queue_with_other_tasks_is_asked_for_what_these_have_room_for() -> None:
    mixed, only = (
        wanting(BatchTerms(5, 0, is_keyed=False), others=1),
        wanting(BatchTerms(5, 0, is_keyed=False)),
    )
    mixed.room = only.room = 3

    assert (mixed.wanted(250), mixed.wanted(1), only.wanted(250)) == (250, 3, 3)


class Named(NamedTuple):
    tenant: str


class Typed(TypedDict):
    tenant: str


class Plain:
    tenant = "ann"


@pytest.mark.parametrize("row", [Named("ann"), {"tenant": "ann"}, Plain()])
def test_a_key_is_made_of_the_fields_of_a_row(row: object) -> None:
    assert Batch(size=3, by="{tenant}").key_of(RowArguments({"row": row})) == "ann"


def test_a_key_is_made_of_a_plain_row_by_the_name_of_the_parameter() -> None:
    assert Batch(size=3, by="{row}").key_of(RowArguments({"row": "ann"})) == "ann"
    assert Batch(size=3, by="{row}").key_of(RowArguments({"row": "a b"})) != "a b"


@pytest.mark.parametrize("row", [{"name": "ann"}, "ann", None, Plain()])
def test_a_row_without_the_field_is_refused(row: object) -> None:
    with pytest.raises(InvalidArgument, match="has no region"):
        Batch(size=3, by="{region}").key_of(RowArguments({"row": row}))


def test_fields_are_known_where_a_class_says_them() -> None:
    assert field_names(Named) == field_names(Typed) == {"tenant"}
    assert field_names(Plain) == field_names(str) == field_names(None) == frozenset()
