"""The thread of a foreign queue, round by round, on a queue in a list and a clock set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqworker.actors.dispatcher.foreign_queue_thread import (
    COUNT_AT_LEAST_EVERY_MS,
    COUNT_EVERY_MS,
    ForeignQueueThread,
)
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.instant import After, At
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Ack, Bury, Failure, Park, Release, RetryAt, Settlement
from mqworker.model.settlement_parts import parts_of
from mqworker.queues.catalogue import Gq, Model, Rsmq
from mqworker.store.outage import OUTAGE_ROUND_MS

RSMQ, GQ = Rsmq(vt=30, poll=0.2), Gq(heartbeat=2.0, poll=0.2)


class HandClock:
    """Stands still unless moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


class ListQueue:
    """A queue in a list; can be away, and lose what it handed out."""

    def __init__(self) -> None:
        self.line: list[Delivery] = []
        self.settled: list[Settlement] = []
        self.claims: list[int] = []
        self.extended: list[list[int]] = []
        self.lost: set[int] = set()
        self.steps: list[str] = []
        self.reclaims = self.counted = 0
        self.is_away = False

    def claim(self, count: int, *, lease_ms: int) -> list[Delivery]:
        assert lease_ms > 0
        self._answer()
        self.claims.append(count)
        taken, self.line = self.line[:count], self.line[count:]
        return taken

    def settle(self, *settlements: Settlement) -> list[Settlement]:
        self._answer()
        self.settled += [each for each in settlements if each.delivery.fence not in self.lost]
        return [each for each in settlements if each.delivery.fence in self.lost]

    def extend(self, *deliveries: Delivery, lease_ms: int) -> list[Delivery]:
        assert lease_ms > 0
        self._answer()
        self.extended.append([each.fence for each in deliveries])
        return [each for each in deliveries if each.fence in self.lost]

    def begin_adoption(self) -> None:
        self.steps.append("begin")

    def adopt(self, *deliveries: Delivery) -> list[Delivery]:
        self._answer()
        self.steps.append("adopt")
        return [each for each in deliveries if each.fence in self.lost]

    def end_adoption(self) -> None:
        self._answer()
        self.steps.append("end")

    def reclaim(self) -> tuple[int, int]:
        self.reclaims += 1
        return 0, 0

    def counts(self) -> dict[str, int]:
        self.counted += 1
        return {"visible": len(self.line)}

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


class ThreadByHand:
    """Its rounds are made by the test: the thread is never started."""

    def __init__(self, model: Model, *, is_first: bool = True) -> None:
        self.model = model
        self.queue, self.clock, self.wake_ups = ListQueue(), HandClock(), 0
        self.opened = 0
        self.thread = ForeignQueueThread(
            model,
            self._open,
            wake_dispatcher=self._note_wake_up,
            max_crashes=5,
            clock=self.clock,
            log=get_logger(),
        )
        if is_first:
            self.thread.end_adoption()

    def round(self, after_ms: int = 0) -> None:
        self.clock.ms += after_ms
        self.thread._round()

    def claim(self, count: int) -> list[int]:
        """`count` new messages, claimed and taken over; their fences."""
        self.queue.line += [a_delivery(number) for number in range(1, count + 1)]
        self.thread.want(count)
        self.round()
        return [fence for fence, _ in self.thread.take_claimed()]

    def report(self, *settlements: Settlement) -> None:
        self.thread.report([parts_of(each) for each in settlements])

    def _open(self) -> Any:  # noqa: ANN401 - stands for the queue of any model
        self.opened += 1
        self.queue._answer()
        return self.queue

    def _note_wake_up(self) -> None:
        self.wake_ups += 1


def a_delivery(fence: int) -> Delivery:
    return Delivery(fence, MessageId(f"m{fence}"), TaskName("shop.mail"), b"", 0)


@pytest.fixture(params=[RSMQ, GQ], ids=["rsmq", "gq"])
def queue_thread(request: pytest.FixtureRequest) -> Iterator[ThreadByHand]:
    return ThreadByHand(request.param)


def test_what_is_wanted_is_claimed_under_fences_that_last(queue_thread: ThreadByHand) -> None:
    queue_thread.queue.line = [a_delivery(1), a_delivery(2), a_delivery(3)]
    queue_thread.thread.want(2)

    queue_thread.round()
    claimed = queue_thread.thread.take_claimed()

    records = [decode_record(record, fence) for fence, record in claimed]
    assert [fence for fence, _ in claimed] == [1, 2]
    assert [(each.id, each.max_crashes) for each in records] == [("m1", 5), ("m2", 5)]
    assert (queue_thread.thread.held, queue_thread.wake_ups, queue_thread.thread.take_claimed()) == (2, 1, [])


def test_nothing_is_claimed_that_nobody_wants(queue_thread: ThreadByHand) -> None:
    queue_thread.queue.line = [a_delivery(1)]

    queue_thread.round()
    queue_thread.thread.want(1)
    queue_thread.round()
    queue_thread.round()

    assert queue_thread.queue.claims == [1]


def test_an_empty_queue_is_asked_again_after_the_pause_of_the_model(queue_thread: ThreadByHand) -> None:
    queue_thread.thread.want(4)

    for after_ms in (0, 100, 99, 1):
        queue_thread.round(after_ms)

    assert queue_thread.queue.claims == [4, 4]
    assert (queue_thread.wake_ups, queue_thread.thread._pause_ms()) == (0, 200)


def test_the_queue_is_counted_now_and_then(queue_thread: ThreadByHand) -> None:
    queue_thread.queue.line = [a_delivery(1), a_delivery(2)]

    for after_ms in (0, COUNT_EVERY_MS - 1, 1):
        queue_thread.round(after_ms)

    assert (queue_thread.thread.counts, queue_thread.queue.counted) == ({"visible": 2}, 2)


def test_counts_are_never_older_than_some_seconds_however_long_counting_or_a_round_takes(
    queue_thread: ThreadByHand,
) -> None:
    counted: list[int] = []

    def count_long() -> dict[str, int]:
        queue_thread.clock.ms += 400
        counted.append(queue_thread.clock.ms)
        return {"visible": len(counted)}

    queue_thread.queue.counts = count_long  # type: ignore[method-assign]
    queue_thread.round()
    queue_thread.round(COUNT_AT_LEAST_EVERY_MS - 1)
    assert (len(counted), queue_thread.thread.counts_age_ms) == (1, COUNT_AT_LEAST_EVERY_MS - 1)

    queue_thread.round(1)

    assert (queue_thread.thread.counts, queue_thread.thread.counts_age_ms) == ({"visible": 2}, 0)


def test_a_slow_round_does_not_put_off_the_next_count(queue_thread: ThreadByHand) -> None:
    claim = queue_thread.queue.claim

    def claim_slowly(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        queue_thread.clock.ms += 60_000
        return claim(*given, **named)

    queue_thread.queue.claim = claim_slowly  # type: ignore[method-assign]
    queue_thread.thread.want(1)
    queue_thread.round()
    queue_thread.queue.line.append(a_delivery(1))
    before = queue_thread.thread.counts_age_ms

    queue_thread.round(COUNT_EVERY_MS)

    assert (before, queue_thread.thread.counts_age_ms) == (0, 0)


def test_a_full_claim_is_followed_by_the_next_at_once(queue_thread: ThreadByHand) -> None:
    queue_thread.claim(2)
    queue_thread.queue.line = [a_delivery(3)]
    queue_thread.thread.want(2)

    queue_thread.round()

    assert queue_thread.queue.claims == [2, 2]


def test_a_report_ends_what_is_held(queue_thread: ThreadByHand) -> None:
    first, second = queue_thread.claim(2)

    queue_thread.report(Ack(a_delivery(first)))
    queue_thread.round()

    assert queue_thread.queue.settled == [Ack(a_delivery(1))]
    assert queue_thread.thread.held == 1
    queue_thread.report(Ack(a_delivery(first)), Bury(a_delivery(second), "poison"))
    queue_thread.round()
    assert [type(each) for each in queue_thread.queue.settled] == [Ack, Bury]


def test_a_report_is_kept_through_an_outage_and_written_once(queue_thread: ThreadByHand) -> None:
    (fence,) = queue_thread.claim(1)
    queue_thread.report(Ack(a_delivery(fence)))
    queue_thread.queue.is_away = True

    queue_thread.round()
    trouble, pause_ms = queue_thread.thread.trouble, queue_thread.thread._pause_ms()
    queue_thread.queue.is_away = False
    queue_thread.round(OUTAGE_ROUND_MS - 1)
    too_early = list(queue_thread.queue.settled)
    queue_thread.round(1)
    queue_thread.round()

    assert (trouble, pause_ms, too_early) == ("away", OUTAGE_ROUND_MS, [])
    assert queue_thread.queue.settled == [Ack(a_delivery(1))]
    assert (queue_thread.thread.trouble, queue_thread.thread.held) == ("", 0)


def test_a_queue_that_cannot_be_opened_is_opened_later(queue_thread: ThreadByHand) -> None:
    queue_thread.queue.is_away = True
    queue_thread.round()
    queue_thread.queue.is_away = False

    queue_thread.round(OUTAGE_ROUND_MS)

    assert (queue_thread.opened, queue_thread.thread.trouble) == (2, "")


def test_what_somebody_else_has_settled_is_let_go(queue_thread: ThreadByHand) -> None:
    (fence,) = queue_thread.claim(1)
    queue_thread.queue.lost = {1}
    queue_thread.report(Ack(a_delivery(fence)))

    queue_thread.round()

    assert (queue_thread.queue.settled, queue_thread.thread.held) == ([], 0)


def test_leases_are_renewed_in_time_and_lost_ones_are_let_go(queue_thread: ThreadByHand) -> None:
    first, _ = queue_thread.claim(2)
    queue_thread.queue.extended.clear()
    every_ms = queue_thread.thread._model.renew_every_ms
    queue_thread.queue.lost = {1}

    queue_thread.round(every_ms - 1)
    too_early = list(queue_thread.queue.extended)
    queue_thread.round(1)
    queue_thread.report(Ack(a_delivery(first)))
    queue_thread.round()

    assert (too_early, queue_thread.queue.extended) == ([], [[1, 2]])
    assert (queue_thread.thread.held, queue_thread.queue.settled) == (1, [])
    assert queue_thread.queue.reclaims == 2


def test_a_model_with_delays_is_told_of_a_retry_at_once() -> None:
    queue_thread = ThreadByHand(RSMQ)
    (fence,) = queue_thread.claim(1)

    queue_thread.report(RetryAt(a_delivery(fence), After(5_000), Failure("ValueError")))
    queue_thread.round()

    assert queue_thread.queue.settled == [RetryAt(a_delivery(1), After(5_000), Failure("ValueError"))]


@pytest.mark.parametrize(
    "postponed",
    [
        lambda fence: RetryAt(a_delivery(fence), After(5_000), Failure("ValueError")),
        lambda fence: Park(a_delivery(fence), At(1_005_000), Failure("UnknownTask")),
    ],
)
def test_a_model_without_delays_keeps_it_held_until_then(postponed: Any) -> None:  # noqa: ANN401
    queue_thread = ThreadByHand(GQ)
    (fence,) = queue_thread.claim(1)
    queue_thread.report(postponed(fence))

    queue_thread.round()
    queue_thread.round(4_999)
    early, pause_ms = list(queue_thread.queue.settled), queue_thread.thread._pause_ms()
    queue_thread.round(1)

    assert (early, pause_ms) == ([], 1)
    assert [type(each) for each in queue_thread.queue.settled] == [type(postponed(1))]
    assert queue_thread.thread.held == 0


def test_the_end_settles_what_is_left_and_gives_back_what_nobody_saw() -> None:
    queue_thread = ThreadByHand(GQ)
    done, postponed, running = queue_thread.claim(3)
    queue_thread.queue.line = [a_delivery(4)]
    queue_thread.thread.want(1)
    queue_thread.round()  # claimed, and not taken over
    queue_thread.report(Ack(a_delivery(done)), RetryAt(a_delivery(postponed), After(60_000), None))

    queue_thread.thread._is_closing = True
    queue_thread.thread._finish()

    assert [(type(each), each.delivery.id) for each in queue_thread.queue.settled] == [
        (Ack, "m1"),
        (RetryAt, "m2"),
        (Release, "m4"),
    ]
    assert list(queue_thread.thread._held) == [running]


def test_an_end_while_the_queue_is_away_raises_nothing(queue_thread: ThreadByHand) -> None:
    (fence,) = queue_thread.claim(1)
    queue_thread.report(Ack(a_delivery(fence)))
    queue_thread.queue.is_away = True

    queue_thread.thread._finish()

    assert queue_thread.thread.held == 1


def test_what_ended_the_thread_is_raised_where_somebody_sees_it(queue_thread: ThreadByHand) -> None:
    def break_down() -> None:
        raise RuntimeError("a bug")

    queue_thread.thread._round = break_down  # type: ignore[method-assign]
    queue_thread.thread._work()

    assert queue_thread.wake_ups == 1
    with pytest.raises(RuntimeError, match="a bug"):
        queue_thread.thread.take_claimed()


def test_what_workers_hold_is_adopted_before_anything_of_it_is_settled(queue_thread: ThreadByHand) -> None:
    successor = ThreadByHand(queue_thread.model, is_first=False)
    successor.queue.lost = {2}
    successor.thread.adopt({1: a_delivery(1), 2: a_delivery(2)})
    successor.report(Ack(a_delivery(1)), Ack(a_delivery(2)))

    successor.round()

    assert (successor.queue.steps, successor.queue.reclaims) == (["begin", "adopt"], 0)
    assert [each.delivery.fence for each in successor.queue.settled] == [1]
    assert successor.thread.take_lost() == [2]


def test_what_is_left_is_anybodys_when_all_workers_have_spoken_and_not_before(
    queue_thread: ThreadByHand,
) -> None:
    successor = ThreadByHand(queue_thread.model, is_first=False)
    successor.round(60_000)
    successor.thread.adopt({1: a_delivery(1)})
    successor.thread.end_adoption()

    successor.round(60_000)
    successor.round(60_000)

    assert successor.queue.steps == ["begin", "adopt", "end"]
    assert successor.queue.reclaims == 2


def test_while_the_queue_is_away_nothing_is_adopted_and_nothing_forgotten(queue_thread: ThreadByHand) -> None:
    successor = ThreadByHand(queue_thread.model, is_first=False)
    successor.round()
    successor.queue.is_away = True
    successor.thread.adopt({1: a_delivery(1)})
    successor.thread.end_adoption()
    successor.round()
    successor.queue.is_away = False

    successor.round(OUTAGE_ROUND_MS)

    assert successor.queue.steps == ["begin", "adopt", "end"]
    assert successor.thread.held == 1
