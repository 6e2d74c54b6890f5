"""A consumer takes over what another one of its node held, whose process ended: on each database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mqworker.errors import StoreUnavailable
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Ack, RetryAt
from mqworker.queues.gq.client import GqClient
from mqworker.queues.gq.consumer import family_of
from mqworker.queues.gq.queue import GqQueue
from mqworker.queues.gq.rules import (
    DELIVERIES_TOLD_APART,
    LARGEST_ID,
    GqClaim,
    GqHeld,
    GqLiveness,
    GqStatus,
    GqTerms,
    Guarantee,
)
from tests.gq.databases import Database
from tests.gq.deaf_store import DeafStore
from tests.support.messages import a_message, bodies, some_messages

NODE = "host.1.ab"
LIVENESS = GqLiveness()
ONCE = GqTerms(Guarantee.AT_MOST_ONCE)


def of_node(client: GqClient, node: str = NODE) -> GqQueue:
    return GqQueue(client.store, node=node)


def test_what_is_adopted_is_settled_by_the_successor_and_not_delivered_again(client: GqClient) -> None:
    old, new = of_node(client), of_node(client)
    old.enqueue(*some_messages(3))
    first, second, _ = old.claim(3)

    new.begin_adoption()
    lost = new.adopt(first, second)
    new.end_adoption()

    assert lost == []
    assert new.extend(first, second) == []
    assert new.settle(Ack(first), RetryAt(second)) == []
    assert client.find(1).status is GqStatus.PROCESSED
    assert bodies(new.claim(5)) == [b"1", b"2"]
    assert old.settle(Ack(second)) == [Ack(second)]


def test_a_fence_grows_with_each_delivery_whichever_node_has_it(client: GqClient) -> None:
    one, other = of_node(client, "one"), of_node(client, "other")
    one.enqueue(a_message())
    [first] = one.claim()
    one.settle(RetryAt(first))
    one.leave()

    [second] = other.claim()

    assert second.fence == first.fence + 1


def test_of_another_node_nothing_is_adopted(client: GqClient) -> None:
    old, stranger = of_node(client), of_node(client, "host.2.cd")
    old.enqueue(a_message())
    [held] = old.claim()

    stranger.begin_adoption()
    lost = stranger.adopt(held)
    stranger.end_adoption()

    assert lost == [held]
    assert old.settle(Ack(held)) == []


def test_what_somebody_else_has_by_now_is_not_taken_from_him(database: Database, client: GqClient) -> None:
    old, other, new = of_node(client), of_node(client, "other"), of_node(client)
    old.enqueue(a_message())
    [held] = old.claim()
    database.silence(client.consumers()[0].uuid, LIVENESS.dead_after_ms)
    other.reclaim()
    [again] = other.claim()

    assert new.adopt(held) == [held]
    assert other.settle(Ack(again)) == []


def test_a_delivery_that_was_released_and_claimed_again_by_the_node_is_another_one(client: GqClient) -> None:
    old, new = of_node(client), of_node(client)
    old.enqueue(a_message())
    [first] = old.claim()
    old.settle(RetryAt(first))
    [second] = old.claim()

    assert new.adopt(first) == [first]
    assert new.adopt(second) == []


def test_predecessors_live_on_and_nobody_is_given_up_until_adoption_is_over(
    database: Database, client: GqClient
) -> None:
    old, new = of_node(client), of_node(client)
    old.enqueue(a_message())
    [held] = old.claim()
    [silent] = [each.uuid for each in client.consumers()]
    database.silence(silent, LIVENESS.dead_after_ms)  # nobody has noticed yet

    new.begin_adoption()
    new.extend()
    lost = new.adopt(held)

    assert lost == []
    assert silent in {each.uuid for each in client.consumers()}
    new.end_adoption()
    assert silent not in {each.uuid for each in client.consumers()}


def test_beats_for_a_predecessor_keep_it_from_being_given_up_by_others(
    database: Database, client: GqClient
) -> None:
    old, new, other = of_node(client), of_node(client), of_node(client, "other")
    old.enqueue(a_message())
    [held] = old.claim()
    [silent] = [each.uuid for each in client.consumers()]
    new.begin_adoption()

    database.silence(silent, LIVENESS.dead_after_ms - 2_000)
    [before] = [each.last_beat_at_ms for each in client.consumers() if each.uuid == silent]
    new.extend()
    other.reclaim()

    [after] = [each.last_beat_at_ms for each in client.consumers() if each.uuid == silent]
    assert after >= before + LIVENESS.dead_after_ms - 2_000
    assert new.adopt(held) == []


def test_what_ended_consumers_held_and_nobody_adopted_is_anybodys_at_once(client: GqClient) -> None:
    new = of_node(client)
    for _ in range(3):
        old = of_node(client)
        old.enqueue(a_message(b"x"))
        old.claim()

    new.begin_adoption()
    new.end_adoption()

    assert bodies(new.claim(5)) == [b"x"] * 3
    assert len(client.consumers()) == 1


def test_at_most_once_what_nobody_adopted_is_not_delivered_again(client: GqClient) -> None:
    old, new = (GqQueue(client.store, terms=ONCE, node=NODE) for _ in range(2))
    old.enqueue(*some_messages(2))
    first, _ = old.claim(2)

    new.begin_adoption()
    lost = new.adopt(first)
    new.end_adoption()

    assert lost == []
    assert new.settle(Ack(first)) == []
    assert new.claim(5) == []
    assert [client.find(each).status for each in (1, 2)] == [GqStatus.PROCESSED, GqStatus.CONSUMED]


def test_at_most_once_a_late_success_counts_though_dispatchers_changed(
    database: Database, client: GqClient
) -> None:
    old, new = (GqQueue(client.store, terms=ONCE, node=NODE) for _ in range(2))
    client.producer().push(b"- task\nx", deadline=timedelta(seconds=5))
    [held] = old.claim()
    database.age(1, 10_000)
    old.reclaim()
    failed = client.find(1).status

    lost = new.adopt(held)

    assert (failed, lost) == (GqStatus.FAILED, [])
    assert new.settle(Ack(held)) == []
    assert client.find(1).status is GqStatus.PROCESSED


@pytest.mark.parametrize("step", ["adopt", "retire"])
def test_a_step_whose_answer_was_lost_is_made_again(client: GqClient, step: str) -> None:
    old, deaf = of_node(client), DeafStore(client.store)
    new = GqQueue(deaf, node=NODE)
    old.enqueue(*some_messages(2))
    first, second = old.claim(2)
    new.begin_adoption()
    deaf.deaf_to = [step]

    with pytest.raises(StoreUnavailable):
        _take_over(new, first)

    assert _take_over(new, first) == []
    assert new.settle(Ack(first)) == []
    assert [each.id for each in new.claim(5)] == [second.id]


def test_an_adoption_that_arrives_late_changes_nothing(client: GqClient) -> None:
    old, ended, new = of_node(client), of_node(client), of_node(client)
    old.enqueue(a_message())
    [held] = old.claim()
    ended.adopt(held)
    new.adopt(held)
    new.adopt(held)  # asked again, for the answer was late
    _, ended_name, new_name = [each.uuid for each in client.consumers()]

    for claim in (GqClaim(ended_name, 99), GqClaim(new_name, 1)):
        client.store.adopt(claim, family_of(NODE), [GqHeld.of(held.fence)], LIVENESS)

    assert new.settle(Ack(held)) == []


def test_thousands_are_adopted(client: GqClient) -> None:
    old, new = of_node(client), of_node(client)
    old.enqueue(*some_messages(2_500))
    held = [*old.claim(1_000), *old.claim(1_000), *old.claim(500)]

    new.begin_adoption()
    lost = new.adopt(*held)
    new.end_adoption()

    assert lost == []
    assert new.extend(*held) == []
    assert new.claim() == []


def test_every_number_that_is_accepted_fits_into_a_fence() -> None:
    largest = GqHeld(LARGEST_ID - 1, DELIVERIES_TOLD_APART - 1)

    assert GqHeld.of(largest.fence) == largest
    assert largest.fence < 2**63  # as wide as a place in a run slot


def _take_over(queue: GqQueue, *held: Delivery) -> list[Delivery]:
    lost = queue.adopt(*held)
    queue.end_adoption()
    return lost


def test_a_beat_that_lies_in_the_future_counts_from_now_on(database: Database, client: GqClient) -> None:
    """The database's clock was set back by an hour: who is dead is not alive until it has caught up."""
    old, other = of_node(client), of_node(client, "other")
    old.enqueue(a_message())
    old.claim()
    [dead] = [each.uuid for each in client.consumers()]
    database.silence(dead, -3_600_000)

    other.reclaim()

    [beat] = [each.last_beat_at_ms for each in client.consumers() if each.uuid == dead]
    database.silence(dead, 0)
    [now] = [each.last_beat_at_ms for each in client.consumers() if each.uuid == dead]
    assert beat <= now
