"""The clerk of a queue of another model, round by round, on a queue in a list and a clock set by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqworker.actors.dispatcher.foreign_queue_thread import (
    COUNT_AT_LEAST_EVERY_MS,
    COUNT_EVERY_MS,
    OUTAGE_PAUSE_MS,
    Clerk,
    fences_since,
)
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.instant import After, At
from mqworker.model.names import MessageId, TaskName
from mqworker.model.record import decode_record
from mqworker.model.settlement import Ack, Bury, Failure, Park, Release, Retry, Settlement
from mqworker.model.settlement_parts import parts_of
from mqworker.queues.catalogue import Gq, Model, Rsmq

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

    def reclaim(self) -> tuple[int, int]:
        self.reclaims += 1
        return 0, 0

    def counts(self) -> dict[str, int]:
        self.counted += 1
        return {"visible": len(self.line)}

    def _answer(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


class Desk:
    """A clerk whose rounds are made by hand: its thread is never started."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.queue, self.clock, self.rings = ListQueue(), HandClock(), 0
        self.opened = 0
        self.clerk = Clerk(
            model,
            self._open,
            fences=fences_since(7),
            ring=self._note_ring,
            max_crashes=5,
            clock=self.clock,
            log=get_logger(),
        )

    def round(self, after_ms: int = 0) -> None:
        self.clock.ms += after_ms
        self.clerk._round()

    def claim(self, count: int) -> list[int]:
        """So many new messages, claimed and taken over; their fences."""
        self.queue.line += [a_delivery(number) for number in range(1, count + 1)]
        self.clerk.want(count)
        self.round()
        return [fence for fence, _ in self.clerk.take_claimed()]

    def report(self, *settlements: Settlement) -> None:
        self.clerk.report([parts_of(each) for each in settlements])

    def _open(self) -> Any:  # noqa: ANN401 - stands for the queue of any model
        self.opened += 1
        self.queue._answer()
        return self.queue

    def _note_ring(self) -> None:
        self.rings += 1


def a_delivery(fence: int) -> Delivery:
    return Delivery(fence, MessageId(f"m{fence}"), TaskName("shop.mail"), b"", 0)


@pytest.fixture(params=[RSMQ, GQ], ids=["rsmq", "gq"])
def desk(request: pytest.FixtureRequest) -> Iterator[Desk]:
    return Desk(request.param)


def test_what_is_wanted_is_claimed_under_fences_that_last_or_are_our_own(desk: Desk) -> None:
    desk.queue.line = [a_delivery(1), a_delivery(2), a_delivery(3)]
    desk.clerk.want(2)

    desk.round()
    claimed = desk.clerk.take_claimed()

    records = [decode_record(record, fence) for fence, record in claimed]
    own = [1, 2] if desk.model.has_lasting_fences else [7_000_000, 7_000_001]
    assert [fence for fence, _ in claimed] == own
    assert [(each.id, each.max_crashes) for each in records] == [("m1", 5), ("m2", 5)]
    assert (desk.clerk.held, desk.rings, desk.clerk.take_claimed()) == (2, 1, [])


def test_nothing_is_claimed_that_nobody_wants(desk: Desk) -> None:
    desk.queue.line = [a_delivery(1)]

    desk.round()
    desk.clerk.want(1)
    desk.round()
    desk.round()

    assert desk.queue.claims == [1]


def test_an_empty_queue_is_asked_again_after_the_pause_of_the_model(desk: Desk) -> None:
    desk.clerk.want(4)

    for after_ms in (0, 100, 99, 1):
        desk.round(after_ms)

    assert desk.queue.claims == [4, 4]
    assert (desk.rings, desk.clerk._pause_ms()) == (0, 200)


def test_the_queue_is_counted_now_and_then(desk: Desk) -> None:
    desk.queue.line = [a_delivery(1), a_delivery(2)]

    for after_ms in (0, COUNT_EVERY_MS - 1, 1):
        desk.round(after_ms)

    assert (desk.clerk.counts, desk.queue.counted) == ({"visible": 2}, 2)


def test_counts_are_never_older_than_some_seconds_however_long_counting_or_a_round_takes(desk: Desk) -> None:
    counted: list[int] = []

    def count_long() -> dict[str, int]:
        desk.clock.ms += 400
        counted.append(desk.clock.ms)
        return {"visible": len(counted)}

    desk.queue.counts = count_long  # type: ignore[method-assign]
    desk.round()
    desk.round(COUNT_AT_LEAST_EVERY_MS - 1)
    assert (len(counted), desk.clerk.counts_age_ms) == (1, COUNT_AT_LEAST_EVERY_MS - 1)

    desk.round(1)

    assert (desk.clerk.counts, desk.clerk.counts_age_ms) == ({"visible": 2}, 0)


def test_a_slow_round_does_not_put_off_the_next_count(desk: Desk) -> None:
    claim = desk.queue.claim

    def claim_slowly(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        desk.clock.ms += 60_000
        return claim(*given, **named)

    desk.queue.claim = claim_slowly  # type: ignore[method-assign]
    desk.clerk.want(1)
    desk.round()
    desk.queue.line.append(a_delivery(1))
    before = desk.clerk.counts_age_ms

    desk.round(COUNT_EVERY_MS)

    assert (before, desk.clerk.counts_age_ms) == (0, 0)


def test_a_full_claim_is_followed_by_the_next_at_once(desk: Desk) -> None:
    desk.claim(2)
    desk.queue.line = [a_delivery(3)]
    desk.clerk.want(2)

    desk.round()

    assert desk.queue.claims == [2, 2]


def test_a_report_ends_what_is_held(desk: Desk) -> None:
    first, second = desk.claim(2)

    desk.report(Ack(a_delivery(first)))
    desk.round()

    assert desk.queue.settled == [Ack(a_delivery(1))]
    assert desk.clerk.held == 1
    desk.report(Ack(a_delivery(first)), Bury(a_delivery(second), "poison"))
    desk.round()
    assert [type(each) for each in desk.queue.settled] == [Ack, Bury]


def test_a_report_is_kept_through_an_outage_and_written_once(desk: Desk) -> None:
    (fence,) = desk.claim(1)
    desk.report(Ack(a_delivery(fence)))
    desk.queue.is_away = True

    desk.round()
    trouble, pause_ms = desk.clerk.trouble, desk.clerk._pause_ms()
    desk.queue.is_away = False
    desk.round(OUTAGE_PAUSE_MS - 1)
    too_early = list(desk.queue.settled)
    desk.round(1)
    desk.round()

    assert (trouble, pause_ms, too_early) == ("away", OUTAGE_PAUSE_MS, [])
    assert desk.queue.settled == [Ack(a_delivery(1))]
    assert (desk.clerk.trouble, desk.clerk.held) == ("", 0)


def test_a_queue_that_cannot_be_opened_is_opened_later(desk: Desk) -> None:
    desk.queue.is_away = True
    desk.round()
    desk.queue.is_away = False

    desk.round(OUTAGE_PAUSE_MS)

    assert (desk.opened, desk.clerk.trouble) == (2, "")


def test_what_somebody_else_has_settled_is_let_go(desk: Desk) -> None:
    (fence,) = desk.claim(1)
    desk.queue.lost = {1}
    desk.report(Ack(a_delivery(fence)))

    desk.round()

    assert (desk.queue.settled, desk.clerk.held) == ([], 0)


def test_leases_are_renewed_in_time_and_lost_ones_are_let_go(desk: Desk) -> None:
    first, _ = desk.claim(2)
    desk.queue.extended.clear()
    every_ms = desk.clerk._model.renew_every_ms
    desk.queue.lost = {1}

    desk.round(every_ms - 1)
    too_early = list(desk.queue.extended)
    desk.round(1)
    desk.report(Ack(a_delivery(first)))
    desk.round()

    assert (too_early, desk.queue.extended) == ([], [[1, 2]])
    assert (desk.clerk.held, desk.queue.settled) == (1, [])
    assert desk.queue.reclaims == 2


def test_a_model_with_delays_is_told_of_a_retry_at_once() -> None:
    desk = Desk(RSMQ)
    (fence,) = desk.claim(1)

    desk.report(Retry(a_delivery(fence), After(5_000), Failure("ValueError")))
    desk.round()

    assert desk.queue.settled == [Retry(a_delivery(1), After(5_000), Failure("ValueError"))]


@pytest.mark.parametrize(
    "postponed",
    [
        lambda fence: Retry(a_delivery(fence), After(5_000), Failure("ValueError")),
        lambda fence: Park(a_delivery(fence), At(1_005_000), Failure("UnknownTask")),
    ],
)
def test_a_model_without_delays_keeps_it_held_until_then(postponed: Any) -> None:  # noqa: ANN401
    desk = Desk(GQ)
    (fence,) = desk.claim(1)
    desk.report(postponed(fence))

    desk.round()
    desk.round(4_999)
    early, pause_ms = list(desk.queue.settled), desk.clerk._pause_ms()
    desk.round(1)

    assert (early, pause_ms) == ([], 1)
    assert [type(each) for each in desk.queue.settled] == [type(postponed(1))]
    assert desk.clerk.held == 0


def test_the_end_settles_what_is_left_and_gives_back_what_nobody_saw() -> None:
    desk = Desk(GQ)
    done, postponed, running = desk.claim(3)
    desk.queue.line = [a_delivery(4)]
    desk.clerk.want(1)
    desk.round()  # claimed, and not taken over
    desk.report(Ack(a_delivery(done)), Retry(a_delivery(postponed), After(60_000), None))

    desk.clerk._is_closing = True
    desk.clerk._finish()

    assert [(type(each), each.delivery.id) for each in desk.queue.settled] == [
        (Ack, "m1"),
        (Retry, "m2"),
        (Release, "m4"),
    ]
    assert list(desk.clerk._held) == [running]


def test_an_end_while_the_queue_is_away_raises_nothing(desk: Desk) -> None:
    (fence,) = desk.claim(1)
    desk.report(Ack(a_delivery(fence)))
    desk.queue.is_away = True

    desk.clerk._finish()

    assert desk.clerk.held == 1


def test_what_ended_the_thread_is_raised_where_somebody_sees_it(desk: Desk) -> None:
    def break_down() -> None:
        raise RuntimeError("a bug")

    desk.clerk._round = break_down  # type: ignore[method-assign]
    desk.clerk._work()

    assert desk.rings == 1
    with pytest.raises(RuntimeError, match="a bug"):
        desk.clerk.take_claimed()
