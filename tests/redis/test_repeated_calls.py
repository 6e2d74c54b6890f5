"""Calls whose reply was lost are sent again: the same answer, and nothing happens twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mqworker.errors import QueueFull, StoreUnavailable
from mqworker.model.guard import GuardMode, unique_guard
from mqworker.model.instant import After, At
from mqworker.model.settlement import Ack, Bury, Release, RetryAt
from mqworker.queues.work.async_queue import AsyncWorkQueue
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.async_store import AsyncStore
from mqworker.store.link.address import parse_address
from mqworker.store.link.async_connection import open_async_connection
from mqworker.store.script import Call
from tests.support.fault_proxy import FaultProxy
from tests.support.messages import AN_HOUR_MS, a_message, open_store, some_messages
from tests.support.raw_queue import RawQueue
from tests.support.real_server import RealServer

Prepared = Callable[[WorkQueue], Call[Any]]


@pytest.fixture
def proxy(server: RealServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.port) as running:
        yield running


@pytest.fixture
def far_queue(proxy: FaultProxy) -> Iterator[WorkQueue]:
    """The same queue, at the other end of a line that can be cut."""
    opened = open_store(proxy.url)
    yield WorkQueue("q", opened)
    opened.close()


def send(queue: WorkQueue, call: Call[Any], number: int = 1, lane: str = "lane") -> object:
    """The very same command, as the store sends it again; decoded."""
    command = call.command_with_source((lane, number))
    return call.decode(queue.store.connection.execute([command], call.keys[0])[0])


def enqueue_plain(queue: WorkQueue) -> Call[Any]:
    return queue.calls.enqueue(some_messages(3))


def enqueue_rich(queue: WorkQueue) -> Call[Any]:
    guard = unique_guard("k", GuardMode.UNTIL_SETTLED)
    return queue.calls.enqueue(
        [
            a_message(priority=3),
            a_message(due=After(AN_HOUR_MS)),
            a_message(deadline=After(AN_HOUR_MS)),
            a_message(guard=guard),
            a_message(guard=guard),
        ]
    )


def claim(queue: WorkQueue) -> Call[Any]:
    queue.enqueue(*some_messages(3))
    return queue.calls.claim(2, None, AN_HOUR_MS)


def claim_by_a_consumer(queue: WorkQueue) -> Call[Any]:
    queue.enqueue(*some_messages(3), a_message(deadline=At(1)))
    return queue.calls.claim(2, "a", AN_HOUR_MS)  # type: ignore[arg-type]


def settle(queue: WorkQueue) -> Call[Any]:
    queue.enqueue(*some_messages(6))
    done, again, later, released, buried, lost = queue.claim(6)
    queue.settle(Ack(lost))
    return queue.calls.settle(
        [
            Ack(done, b"result"),
            Ack(lost),
            RetryAt(again),
            RetryAt(later, After(AN_HOUR_MS)),
            Release(released),
            Bury(buried, "why"),
        ],
        None,
    )


def push(queue: WorkQueue) -> Call[Any]:
    return queue.calls.push([b"a", b"b"])


def pop(queue: WorkQueue) -> Call[Any]:
    queue.push(b"a", b"b", b"c")
    return queue.calls.pop(2)


def pop_of_garbage(queue: WorkQueue) -> Call[Any]:
    queue.push(b"a")
    garbage = b"no record, and longer than any header is"
    queue.store.connection.execute([("RPUSH", queue.calls.keys.named("ready"), garbage)], None)
    queue.push(b"b")
    return queue.calls.pop(2)


def ack(queue: WorkQueue) -> Call[Any]:
    first, second = queue.push(b"a", b"b")
    queue.pop(2)
    return queue.calls.ack([first, "unknown", second])


def recover(queue: WorkQueue) -> Call[Any]:
    queue.push(b"a", b"b")
    queue.pop(2)
    return queue.calls.recover(2, 0)


NUMBERED: list[Prepared] = [
    enqueue_plain,
    enqueue_rich,
    claim,
    claim_by_a_consumer,
    settle,
    push,
    pop,
    pop_of_garbage,
    ack,
    recover,
]


@pytest.mark.parametrize("prepare", NUMBERED)
def test_a_call_sent_again_answers_the_same_and_changes_nothing(
    queue: WorkQueue, raw: RawQueue, prepare: Prepared
) -> None:
    call = prepare(queue)
    first = send(queue, call)
    before = raw.dump()

    second = send(queue, call)

    assert call.is_numbered
    assert second == first
    assert raw.dump() == before


@pytest.mark.parametrize("prepare", NUMBERED)
def test_the_next_call_of_the_lane_is_a_new_one(queue: WorkQueue, raw: RawQueue, prepare: Prepared) -> None:
    call = prepare(queue)
    send(queue, call)
    before = raw.dump()

    send(queue, call, number=2)

    assert raw.dump() != before


@pytest.mark.parametrize("prepare", [enqueue_plain, enqueue_rich, push])
def test_messages_are_not_stored_again_when_they_were_acked_meanwhile(
    queue: WorkQueue, raw: RawQueue, prepare: Prepared
) -> None:
    call = prepare(queue)
    first = send(queue, call)
    queue.settle(*map(Ack, queue.claim(10)))
    queue.purge_waiting()
    before = raw.dump()

    second = send(queue, call)

    assert second == first
    assert raw.dump() == before
    assert queue.counts().ready == 0


def test_a_claim_sent_again_leaves_out_what_was_settled_meanwhile(queue: WorkQueue, raw: RawQueue) -> None:
    call = claim(queue)
    first, second = send(queue, call)  # type: ignore[misc]
    queue.settle(Ack(first))
    before = raw.dump()

    again = send(queue, call)

    assert again == [second]
    assert raw.dump() == before


def test_a_pop_sent_again_leaves_out_what_was_acked_meanwhile(queue: WorkQueue, raw: RawQueue) -> None:
    call = pop(queue)
    first, second = send(queue, call)  # type: ignore[misc]
    queue.ack(first[0])
    before = raw.dump()

    again = send(queue, call)

    assert again == [second]
    assert raw.dump() == before


def test_a_settle_sent_again_does_not_touch_a_later_delivery(queue: WorkQueue, raw: RawQueue) -> None:
    queue.enqueue(a_message())
    call = queue.calls.settle([RetryAt(queue.claim()[0])], None)
    send(queue, call)
    queue.claim()
    before = raw.dump()

    assert send(queue, call) == []
    assert raw.dump() == before


def test_an_enqueue_after_a_refused_one_may_succeed(queue: WorkQueue) -> None:
    """It is another call of the lane; a copy of the refused one stays refused (test_late_calls.py)."""
    queue.limit(1)
    queue.enqueue(a_message())
    with pytest.raises(QueueFull):
        queue.enqueue(a_message())
    queue.limit(None)

    assert queue.enqueue(a_message())[0].is_new


@pytest.mark.parametrize("cuts", [1, 3])
def test_a_lost_reply_stores_one_message(
    far_queue: WorkQueue, queue: WorkQueue, proxy: FaultProxy, cuts: int
) -> None:
    proxy.lose_scripts(cuts)

    stored = far_queue.enqueue(a_message())

    assert proxy.lost == cuts
    assert stored[0].is_new
    assert queue.counts().ready == 1
    assert queue.counts().totals["enqueued"] == 1


def test_a_lost_reply_delivers_once_and_loses_no_delivery(
    far_queue: WorkQueue, queue: WorkQueue, proxy: FaultProxy
) -> None:
    queue.enqueue(*some_messages(3))
    proxy.lose_scripts()

    claimed = far_queue.claim(2)

    assert proxy.lost == 1
    assert [delivery.body for delivery in claimed] == [b"0", b"1"]
    assert queue.counts().leased == 2
    assert queue.counts().ready == 1


def test_a_lost_reply_acks_once_and_says_so(
    far_queue: WorkQueue, queue: WorkQueue, proxy: FaultProxy
) -> None:
    queue.enqueue(a_message())
    delivery = far_queue.claim()[0]
    proxy.lose_scripts()

    lost = far_queue.settle(Ack(delivery))

    assert proxy.lost == 1
    assert lost == []
    assert queue.counts().totals["succeeded"] == 1


def test_lost_replies_of_the_other_verbs_do_no_harm(
    far_queue: WorkQueue, queue: WorkQueue, proxy: FaultProxy
) -> None:
    proxy.lose_scripts(9)
    (pushed,) = far_queue.push(b"a")
    popped = far_queue.pop()
    recovered = far_queue.recover(1, 0)
    acked = far_queue.ack(pushed)
    message = a_message()
    far_queue.enqueue(message)
    is_cancelled = far_queue.cancel(message.id)

    assert proxy.lost == 9
    assert popped == recovered == [(pushed, b"a")]
    assert acked == [pushed]
    assert is_cancelled
    assert queue.counts().totals["succeeded"] == 1
    assert queue.counts().totals["cancelled"] == 1


def test_a_lost_reply_in_a_round_trip_of_two_calls_repeats_both_harmlessly(
    far_queue: WorkQueue, queue: WorkQueue, proxy: FaultProxy
) -> None:
    queue.enqueue(*some_messages(3))
    first = far_queue.claim()[0]
    proxy.lose_scripts()

    lost, claimed = far_queue.store.run_together(
        [far_queue.calls.settle([Ack(first)], None), far_queue.calls.claim(1, None, AN_HOUR_MS)]
    )

    assert proxy.lost == 1
    assert lost == []
    assert [delivery.body for delivery in claimed] == [b"1"]
    assert (queue.counts().leased, queue.counts().ready) == (1, 1)


def test_when_the_line_stays_cut_the_caller_learns_that_nobody_can_know(
    proxy: FaultProxy, queue: WorkQueue
) -> None:
    impatient = open_store(proxy.url, retry_for_ms=50)
    far_queue = WorkQueue("q", impatient)
    far_queue.enqueue(a_message())
    proxy.lose_scripts(1_000)

    with pytest.raises(StoreUnavailable) as refused:
        far_queue.enqueue(a_message())

    impatient.close()
    assert refused.value.maybe_executed
    assert queue.counts().ready == 2, "it was stored, though once only"


def test_a_call_that_was_given_up_is_not_taken_for_the_next_one(proxy: FaultProxy, queue: WorkQueue) -> None:
    impatient = open_store(proxy.url, retry_for_ms=0)
    far_queue = WorkQueue("q", impatient)
    far_queue.enqueue(a_message(b"0"))
    proxy.lose_scripts()
    with pytest.raises(StoreUnavailable):
        far_queue.enqueue(a_message(b"1"))

    far_queue.enqueue(a_message(b"2"))

    impatient.close()
    assert [delivery.body for delivery in queue.claim(9)] == [b"0", b"1", b"2"]


def test_a_lost_reply_in_asyncio(proxy: FaultProxy, queue: WorkQueue) -> None:
    async def scenario() -> int:
        connection = open_async_connection(
            parse_address(proxy.url), connect_timeout_s=2, read_timeout_s=5, client_name="mqw-test"
        )
        store = AsyncStore(connection)
        far_queue = AsyncWorkQueue("q", store)
        proxy.lose_scripts(3)
        await far_queue.enqueue(a_message())
        delivery = (await far_queue.claim())[0]
        lost = await far_queue.settle(Ack(delivery))
        await store.close()
        return len(lost)

    lost_count = asyncio.run(scenario())

    assert lost_count == 0
    assert proxy.lost == 3
    assert queue.counts().totals["enqueued"] == queue.counts().totals["succeeded"] == 1
