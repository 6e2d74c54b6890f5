"""Early starts, as the dispatcher sees them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.reconciliation import RECONCILE_EVERY_MS, SECOND_LOOK_MS
from mqworker.actors.early_start.offer import LOOK_AFTER_MS
from mqworker.actors.mail import (
    DeliveriesFinished,
    Drain,
    PeerAttached,
    PeerLost,
    RunDeliveries,
    StandReady,
    WorkerExited,
    WorkerReady,
)
from tests.support.dispatcher_stage import Stage, a_record

RECORD = a_record(9)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def offered(stage: Stage) -> list[str]:
    """The tickets of the latest offer."""
    return stage.store.offers[-1]


def redeem(stage: Stage, ticket: str, fence: int, queue: str = "default") -> bool:
    """As the worker does."""
    worker, number, _ = ticket.split(":")
    return stage.tickets.redeem(int(worker), int(number), queue, fence)


def report(stage: Stage, worker: str, fence: int) -> None:
    stage.mail(DeliveriesFinished("default", [fence], ["done", fence], {"task": (1, 0.01)}), worker)


def handed_out(posts: list[Post]) -> list[tuple[str, list[int]]]:
    return [(post.to, post.mail.fences) for post in posts if isinstance(post.mail, RunDeliveries)]


def test_a_worker_is_told_where_to_listen(stage: Stage) -> None:
    stage.mail(PeerAttached("worker:1"))
    ready = WorkerReady({}, {"default": {"weight": 1}}, 1, 1)
    posts = stage.dispatcher.handle(ready, "worker:1", stage.now_ms)

    assert posts == [Post("worker:1", StandReady({"mqw:{default}:begin:node-1:1": "default"}))]


def test_what_a_worker_began_by_itself_is_not_handed_out(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()
    first, second = offered(stage)
    assert redeem(stage, first, 900)

    stage.hand_over(900, RECORD, first)
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)
    report(stage, "worker:0", 900)
    posts += stage.turn()

    assert handed_out(posts) == []
    assert stage.store.settled == [("done", 900)]
    assert offered(stage)[1].split(":")[:2] == second.split(":")[:2], "nobody used it"
    assert offered(stage)[0].startswith("0:")
    assert offered(stage)[0] != first


def test_a_report_may_come_before_the_wake_up(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    redeem(stage, ticket, 900)

    report(stage, "worker:0", 900)
    stage.hand_over(900, RECORD, ticket)
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(posts) == []
    assert stage.store.settled == [("done", 900)]
    assert stage.dispatcher.facts()["in_flight"] == 0
    assert redeem(stage, offered(stage)[0], 901), "and it may begin the next one"


def test_what_its_worker_does_not_begin_goes_to_whoever_is_free(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)

    stage.hand_over(900, RECORD, ticket)
    at_once = stage.turn()
    wait_ms = stage.dispatcher.next_turn_in_ms(stage.now_ms)
    later = stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(at_once) == []
    assert wait_ms <= LOOK_AFTER_MS
    assert handed_out(later) == [("worker:0", [900])]
    assert not redeem(stage, ticket, 900), "the worker hears of it too late"


def test_who_was_late_is_not_the_first_to_be_given_it_again(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()

    stage.hand_over(900, RECORD, offered(stage)[0])
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(posts) == [("worker:1", [900])]


def test_what_its_worker_does_not_begin_is_handed_out_before_what_was_claimed_since(stage: Stage) -> None:
    """The worker has room on its event loop, so that more is claimed while its early start is still open."""
    stage.hire("worker:0", task={}, atask={"async": True})
    tasks = stage.dispatcher._workers["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, 1, 100), "worker:0")
    stage.turn()
    stage.hand_over(1, RECORD, offered(stage)[0])
    stage.store._fence = 1
    stage.store.line = [a_record(number) for number in (2, 3)]
    stage.dispatcher._queues["default"].may_have_messages = True

    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(posts)[:1] == [("worker:0", [1])]


def test_of_two_queues_that_offered_the_same_ticket_the_other_message_is_handed_out(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    tasks = stage.dispatcher._workers["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}, "mail": {"weight": 1}}, 1, 1), "worker:0")
    stage.turn()  # there is room for one of them; the other has its turn in the next
    stage.turn()
    in_default, in_mail = (offer[0] for offer in stage.store.offers[-2:])
    redeem(stage, in_mail, 900, "mail")

    stage.hand_over(900, RECORD, in_default, "default")
    stage.hand_over(900, RECORD, in_mail, "mail")
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(posts) == [("worker:1", [900])]
    assert [cast(RunDeliveries, post.mail).queue for post in posts if post.to == "worker:1"] == ["default"]


def test_nothing_is_handed_out_to_a_worker_before_its_ticket_is_cancelled(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    redeem(stage, ticket, 900)  # and nobody has heard of it here
    stage.store.line = [a_record(1)]

    posts = stage.turn(passed_ms=1_000)
    stage.hand_over(900, RECORD, ticket)
    posts += stage.turn()
    report(stage, "worker:0", 900)
    posts += stage.turn()

    assert handed_out(posts) == [("worker:0", [1])], "only when it is free again"


def test_a_message_with_an_old_ticket_is_handed_out_at_once(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()
    ticket = offered(stage)[0]
    stage.store.line = [a_record(1)]
    stage.turn(passed_ms=1_000)  # which cancels all

    stage.hand_over(900, RECORD, ticket)
    posts = stage.turn()

    assert handed_out(posts) == [("worker:1", [900])]


@pytest.mark.parametrize("has_begun", [True, False])
def test_of_a_dead_worker_only_what_it_began_counts_as_a_crash(stage: Stage, *, has_begun: bool) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    stage.hand_over(900, RECORD, ticket)
    stage.turn()
    if has_begun:
        redeem(stage, ticket, 900)
        stage.slots.begin(0, "default", 900, 0)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.hire("worker:0")
    posts = stage.turn()

    if has_begun:
        assert stage.store.settled[-1][-5:] == ("again", 900, "", 0, 1)
        assert handed_out(posts) == []
    else:
        assert stage.store.settled == []
        assert handed_out(posts) == [("worker:0", [900])]


def test_a_crash_counts_though_the_worker_was_lost_before_the_wake_up_came(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    redeem(stage, ticket, 900)
    stage.slots.begin(0, "default", 900, 0)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.hire("worker:0")
    stage.hand_over(900, RECORD, ticket)
    posts = stage.turn()

    assert stage.store.settled[-1][-5:] == ("again", 900, "", 0, 1)
    assert handed_out(posts) == []


def test_a_new_worker_cannot_use_the_ticket_of_the_one_before_it(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)

    stage.mail(PeerLost("worker:0"))
    stage.mail(PeerAttached("worker:0"))

    assert not redeem(stage, ticket, 900)


def test_what_a_worker_began_and_nobody_heard_of_has_not_strayed(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    redeem(stage, offered(stage)[0], 900)
    stage.store.held = {900: RECORD}

    stage.turn(passed_ms=RECONCILE_EVERY_MS)
    stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn(passed_ms=RECONCILE_EVERY_MS)
    stage.turn(passed_ms=SECOND_LOOK_MS)

    assert stage.store.settled == []


def test_what_strayed_cannot_be_begun_afterwards(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    stage.store.held = {900: RECORD}

    stage.turn(passed_ms=RECONCILE_EVERY_MS)
    stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn()

    assert 900 in stage.store.settled[0]
    assert not redeem(stage, ticket, 900)


def test_a_drain_waits_for_what_began_by_itself(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    redeem(stage, offered(stage)[0], 900)

    stage.mail(Drain(10_000), SUPERVISOR)
    stage.turn()
    was_done = stage.dispatcher.is_done
    report(stage, "worker:0", 900)
    stage.turn()
    stage.turn()

    assert not was_done
    assert stage.store.settled == [("done", 900)]
    assert stage.dispatcher.is_done


def test_a_drain_gives_back_what_nobody_began(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    (ticket,) = offered(stage)
    stage.hand_over(900, RECORD, ticket)
    stage.turn()

    stage.mail(Drain(10_000), SUPERVISOR)
    stage.turn()
    stage.turn()

    assert stage.store.settled[0][-5:] == ("again", 900, "", 0, 0)
    assert not redeem(stage, ticket, 900)
    assert stage.dispatcher.is_done


@pytest.mark.parametrize("ticket", ["-", "-:00112233445566ff", "0:17:00112233445566ff"])
def test_what_comes_for_no_place_that_was_offered_is_not_run(stage: Stage, ticket: str) -> None:
    stage.hire("worker:0")
    stage.turn()

    stage.hand_over(900, RECORD, ticket)
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS) + stage.turn(passed_ms=RECONCILE_EVERY_MS)

    assert handed_out(posts) == []
    assert stage.store.settled == []


def test_what_was_heard_once_cannot_be_repeated_with_another_record(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()
    ticket = offered(stage)[0]
    redeem(stage, ticket, 900)

    stage.hand_over(900, RECORD, ticket)
    stage.hand_over(901, a_record(8), ticket)
    posts = stage.turn() + stage.turn(passed_ms=LOOK_AFTER_MS)

    assert handed_out(posts) == []


def test_what_the_server_holds_for_an_offer_that_was_forgotten_is_released_soon(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.store.held = {900: RECORD}

    stage.hand_over(900, RECORD, "-:00112233445566ff")
    stage.turn()
    stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn()

    assert [900 in arguments for arguments in stage.store.settled] == [True]


def test_however_many_are_made_up_the_server_is_not_looked_at_more_often(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    looks: list[str] = []
    send_each = stage.store.send_each
    stage.store.send_each = lambda commands, keys: looks.extend(keys) or send_each(commands, keys)  # type: ignore[method-assign, func-returns-value]

    for number in range(100):
        stage.hand_over(900 + number, RECORD, "-:00112233445566ff")
        stage.turn(passed_ms=2)

    assert len(looks) <= 1
