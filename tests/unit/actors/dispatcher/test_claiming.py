"""Settling and claiming in one round trip, and asking for permits."""

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.dispatcher.hand_out import LONGEST_WAIT_MS
from mqworker.actors.dispatcher.permits import FIRST_LIMITED
from mqworker.actors.dispatcher.queue import Receipt
from mqworker.actors.dispatcher.workers import Idle, WorkerState
from mqworker.actors.mail import (
    Drain,
    PermitsWanted,
    RetireWorker,
    RunDeliveries,
)
from mqworker.errors import StoreRefused
from mqworker.store.store import Store
from tests.support.dispatcher_stage import Stage, a_record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_was_finished_is_settled_in_the_same_exchange_as_the_next_claim(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1), a_record(2)]
    stage.finish("worker:0", stage.turn()[0])

    stage.turn()

    assert [call.script.name for call in stage.store.attempts[-1]] == ["settle", "claim"]
    assert stage.store.settled == [("done", 1)]


def test_an_exchange_that_was_not_answered_is_attempted_again_and_not_made_anew(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    stage.store.is_away = True
    stage.turn()

    stage.store.is_away = False
    posts = stage.turn(passed_ms=1_000)

    assert stage.store.attempts[0] is stage.store.attempts[1]
    assert [post.to for post in posts] == ["worker:0"]


def test_idle_workers_are_offered_with_the_claim(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")

    stage.turn()

    assert [len(tickets) for tickets in stage.store.offers] == [2]


def test_an_offer_is_renewed_with_what_is_settled_anyway(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.hand_over(900, a_record(9))
    handed_over = stage.turn()[0]

    stage.finish("worker:0", handed_over)
    stage.turn()

    assert [len(tickets) for tickets in stage.store.offers] == [1, 1]
    assert len(stage.store.attempts) == 2


def test_an_offer_is_withdrawn_with_what_found_nobody_idle(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={})
    stage.turn()
    slow = a_record(9).replace(b" task ", b" slow ")
    for fence in (900, 901):  # made for another worker, a while ago
        stage.hand_over(fence, slow)
    stage.dispatcher._queues["default"]._offered = 3
    stage.turn()

    stage.turn(passed_ms=LONGEST_WAIT_MS + 1)
    stage.turn()

    assert 901 in stage.store.settled[0]
    assert [len(tickets) for tickets in stage.store.offers] == [1, 0]


def test_a_server_that_refuses_is_asked_again_later(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    stage.store.trouble = StoreRefused("demands a password")
    stage.turn()
    is_up = stage.dispatcher.facts()["is_store_up"]

    stage.store.trouble = None
    posts = stage.turn(passed_ms=1_000)

    assert is_up is False
    assert [post.to for post in posts] == ["worker:0"]


def test_a_report_is_settled_though_another_queue_took_all_the_room(stage: Stage) -> None:
    stage.hire("worker:0")
    queue = stage.dispatcher._queues["default"]
    queue.add_settlement([1], Receipt(WorkerState("worker:0"), 1))

    exchange = queue.next_exchange(cast(Store, stage.store), -3, Idle(), lambda _most: [], 0)
    assert exchange is not None
    claimed = queue.complete([0], 0)

    assert claimed == []


def test_what_may_run_once_is_handed_out_like_any_other_and_acknowledged_by_nobody_here(stage: Stage) -> None:
    stage.hire("worker:0", task={"once": True})
    stage.store.line = [a_record(0)]

    posts = [*stage.turn(), *stage.turn()]
    stage.mail(Drain(1_000))
    stage.turn()

    handed = [post for post in posts if isinstance(post.mail, RunDeliveries)]
    assert [cast(RunDeliveries, post.mail).records for post in handed] == [[a_record(0)]]
    assert stage.store.settled == []


def test_limited_messages_are_let_in_though_a_long_line_takes_all_the_room(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True})
    stage.store.line = [a_record(number) for number in range(5_000)]

    posts = [stage.turn(passed_ms=50) for _ in range(4)]

    assert [post.mail.queue for turn in posts for post in turn if isinstance(post.mail, PermitsWanted)]


def test_no_permits_are_wanted_any_more_as_soon_as_there_is_no_room(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True})
    asked = [post.mail for post in stage.turn(passed_ms=50)]
    stage.store.line = [a_record(1)]
    stage.turn(passed_ms=1_000)

    told = [post.mail for post in stage.turn(passed_ms=1)]

    assert PermitsWanted("default", 1) in asked
    assert PermitsWanted("default", 0) in told


def test_a_permit_is_counted_from_before_the_claim_was_sent(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True})
    stage.store.line = [
        a_record(1).replace(b"0--3", b"0-l3").replace(b"task body", b"task 70;t=1/1000/1 body")
    ]

    (post,) = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]

    mail = cast(RunDeliveries, post.mail)
    assert mail.start_by_ms == {mail.fences[0]: stage.now_ms + 70}


def test_the_rate_limiter_is_told_seldom_while_nothing_limited_is_heard_of(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True})
    stage.turn(passed_ms=2_000)

    told = [post.mail for _ in range(200) for post in stage.turn(passed_ms=50)]

    assert len([mail for mail in told if isinstance(mail, PermitsWanted)]) <= 11


def test_the_first_limited_message_that_waits_calls_for_a_permit_at_once_and_claims_nothing(
    stage: Stage,
) -> None:
    stage.hire("worker:0", task={"limited": True})
    stage.turn(passed_ms=2_000)
    stage.turn(passed_ms=10)
    attempts = len(stage.store.attempts)
    stage.store.calls = [("mqw:{default}:meta", FIRST_LIMITED)]

    told = [post.mail for post in stage.turn(passed_ms=10)]

    assert PermitsWanted("default", 1) in told
    assert len(stage.store.attempts) == attempts


def test_a_dispatcher_without_room_does_not_turn_all_the_time(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True})
    stage.mail(RetireWorker("worker:0"))
    stage.turn(passed_ms=2_000)

    assert stage.dispatcher.next_turn_in_ms(stage.now_ms) > 0
