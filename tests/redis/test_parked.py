"""What one node cannot run is claimed at once by one that can, and by nobody else."""

from __future__ import annotations

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.names import ConsumerName, TaskName
from mqworker.model.record import decode_record
from mqworker.model.settlement import UNKNOWN_TASK, Failure, Park, RetryAt
from mqworker.queues.work.calls import LookAgain
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import a_message
from tests.support.raw_queue import RawQueue

FAILURE = Failure("UnknownTask")
KNOWS = ConsumerName("knows.1.1")


@pytest.fixture
def queue(store: Store) -> WorkQueue:
    return WorkQueue("default", store)


def park(queue: WorkQueue, task: str, mark: str = UNKNOWN_TASK, **options: object) -> str:
    """Enqueue one, claim it and park it."""
    message = a_message(task=TaskName(task), **options)
    queue.enqueue(message)
    for delivery in queue.claim(10):
        assert queue.settle(Park(delivery, After(30_000), FAILURE, mark)) == []
    return message.id


def claim(queue: WorkQueue, *known: str, count: int = 10) -> list[Delivery]:
    reply = queue.store.run(queue.calls.claim_records(count, KNOWS, (), known))
    assert not isinstance(reply, LookAgain)
    return [decode_record(record, fence) for fence, record in reply]


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.id for delivery in deliveries]


def index(raw: RawQueue) -> int:
    return int(raw.client.zcard(raw.key("parked")))


def test_who_knows_the_task_claims_it_at_once(queue: WorkQueue, raw: RawQueue) -> None:
    parked, _ = park(queue, "shop.pay"), park(queue, "shop.payback")

    assert claim(queue) == []
    assert claim(queue, "shop.mail", "v1") == []
    (delivery,) = claim(queue, "shop.mail", "v1", "shop.pay", "v1")

    assert (delivery.id, delivery.attempt, delivery.failures) == (parked, 2, 0)
    assert (queue.counts().delayed, index(raw)) == (1, 1)


def test_a_refused_call_is_claimed_only_by_another_version(queue: WorkQueue) -> None:
    parked = park(queue, "shop.pay", "v1")

    assert claim(queue, "shop.pay", "v1") == []
    assert ids(claim(queue, "shop.pay", "v0")) == [parked]
    parked = park(queue, "shop.pay", "v1")
    assert ids(claim(queue, "shop.pay", "v2")) == [parked]


def test_versions_that_all_refuse_a_call_do_not_pass_it_on_for_ever(queue: WorkQueue, raw: RawQueue) -> None:
    park(queue, "shop.pay", "v1")

    rounds = 0
    while claimed := claim(queue, "shop.pay", f"v{2 - rounds % 2}"):
        rounds += 1
        queue.settle(Park(claimed[0], After(30_000), FAILURE, f"v{2 - (rounds - 1) % 2}"), consumer=KNOWS)
        assert rounds < 20

    assert rounds == 7
    assert (queue.counts().delayed, index(raw)) == (1, 1)


def test_thousands_of_another_task_do_not_hide_one_that_is_known(queue: WorkQueue) -> None:
    queue.enqueue(*(a_message(task=TaskName("shop.gone")) for _ in range(1_000)))
    queue.settle(*(Park(each, After(30_000), FAILURE, UNKNOWN_TASK) for each in queue.claim(1_000)))
    parked = park(queue, "shop.pay")

    assert ids(claim(queue, "shop.pay", "v1")) == [parked]


def test_what_was_parked_comes_before_the_line_and_not_more_than_was_asked_for(queue: WorkQueue) -> None:
    parked = [park(queue, "shop.pay") for _ in range(3)]
    waiting = a_message(task=TaskName("shop.pay"))
    queue.enqueue(waiting)

    first, second = claim(queue, "shop.pay", "v1", count=2), claim(queue, "shop.pay", "v1", count=2)

    assert (len(first), sorted(ids(first + second))) == (2, sorted([*parked, waiting.id]))
    assert second[-1].id == waiting.id


def test_an_entry_that_its_message_left_behind_is_no_right_to_run_it_early(
    queue: WorkQueue, raw: RawQueue
) -> None:
    raw.end_delay(park(queue, "shop.pay"), 1)
    queue.promote()
    (delivery,) = queue.claim(1)
    queue.settle(RetryAt(delivery, After(60_000)))

    assert claim(queue, "shop.pay", "v1") == []
    assert queue.counts().delayed == 1


def test_nothing_is_claimed_that_was_cancelled_or_is_over(queue: WorkQueue, raw: RawQueue) -> None:
    cancelled = park(queue, "shop.pay")
    assert queue.cancel(cancelled)
    over = park(queue, "shop.pay", deadline=After(60_000))
    key = raw.key("parcels")
    text = raw.client.hget(key, over)
    deadline = decode_record(text, 1).deadline_at_ms
    raw.client.hset(key, over, text.replace(b"%d" % deadline, b"%d" % 1_600_000_000_000))
    raw.client.zadd(raw.key("deadlines"), {over: 1_600_000_000_000})

    assert claim(queue, "shop.pay", "v1") == []
    assert queue.find(over).state == "expired"
    assert queue.find(cancelled).state == "cancelled"


def test_nothing_is_claimed_from_a_paused_queue(queue: WorkQueue) -> None:
    parked = park(queue, "shop.pay")

    queue.pause()
    assert claim(queue, "shop.pay", "v1") == []
    queue.resume()

    assert ids(claim(queue, "shop.pay", "v1")) == [parked]


def test_what_was_claimed_and_lost_comes_back(queue: WorkQueue) -> None:
    parked = park(queue, "shop.pay")
    claim(queue, "shop.pay", "v1")

    assert queue.reap(KNOWS, silent_ms=0) == 1

    assert ids(queue.claim(1)) == [parked]


def test_repair_drops_entries_that_were_left_behind(queue: WorkQueue, raw: RawQueue) -> None:
    queue.cancel(park(queue, "shop.pay"))
    kept = park(queue, "shop.pay")

    queue.repair()

    assert index(raw) == 1
    assert ids(claim(queue, "shop.pay", "v1")) == [kept]


def test_a_foreign_entry_harms_nobody(queue: WorkQueue, raw: RawQueue) -> None:
    raw.client.zadd(raw.key("parked"), {"shop.pay x": 0, "shop.pay - 99 ": 0, b"shop.pay \xff": 5})
    parked = park(queue, "shop.pay")

    assert ids(claim(queue, "shop.pay", "v1")) == [parked]
