"""What a dispatcher takes over from the one before it, without processes and without Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.adoption import (
    LONGEST_WAIT_MS,
    LOOK_EVERY_MS,
    Held,
    Judgement,
    Predecessor,
    judge,
    read_held,
)
from mqworker.actors.dispatcher.lost_workers import EVIDENCE_WAIT_MS
from mqworker.actors.early_start.tickets import Redeemed
from mqworker.actors.mail import (
    CancelDelivery,
    DeliveriesFinished,
    DeliveriesReturned,
    KillWorker,
    PeerAttached,
    PeerLost,
    ReportsAccepted,
    RunDeliveries,
    StandReady,
    WorkerExited,
    WorkerReady,
)
from mqworker.actors.run_slot import Begun, mark_of
from tests.support.dispatcher_stage import Stage, a_record

PLAIN, ONCE = "shop.mail", "shop.pay"
ONCE_TASKS = [ONCE]


def held(fence: int, task: str = PLAIN, queue: str = "default") -> Held:
    return Held(queue, fence, task, b"")


# The decision: what the worker says, by what the server says


@pytest.mark.parametrize(
    ("says", "keeps", "judgement"),
    [
        ([], {}, Judgement({}, [])),
        ([], {("default", 7): b"r"}, Judgement({}, [])),
        ([held(7)], {("default", 7): b"r"}, Judgement({("default", 7): b"r"}, [])),
        ([held(7)], {("default", 7): None}, Judgement({}, [["default", 7]])),
        ([held(7)], {}, Judgement({}, [["default", 7]])),
        ([held(7)], {("other", 7): b"r"}, Judgement({}, [["default", 7]])),
        ([held(7, ONCE)], {("default", 7): None}, Judgement({}, [])),
        ([held(7, ONCE)], {("default", 7): b"r"}, Judgement({("default", 7): b"r"}, [])),
        (
            [held(7), held(8), held(9, ONCE)],
            {("default", 8): b"r"},
            Judgement({("default", 8): b"r"}, [["default", 7]]),
        ),
    ],
    ids=[
        "nothing",
        "held by nobody",
        "held and kept",
        "given to somebody else",
        "not asked for",
        "the same fence of another queue",
        "acknowledged before it began",
        "not acknowledged yet",
        "some of each",
    ],
)
def test_what_is_held_and_kept_is_adopted_and_what_is_only_held_is_stale(
    says: list[Held], keeps: dict[tuple[str, int], bytes | None], judgement: Judgement
) -> None:
    assert judge(says, keeps, ONCE_TASKS) == judgement


def test_a_greeting_reads_as_it_was_written() -> None:
    assert read_held([["default", 7, PLAIN, b""]]) == [held(7)]


# Whom to wait for


def test_everybody_who_lived_is_waited_for_until_he_spoke_or_died() -> None:
    predecessor = Predecessor(["worker:0", "worker:1"])

    predecessor.note_heard("worker:0")
    predecessor.note_heard("worker:7")
    is_waiting = predecessor.is_anybody_awaited
    predecessor.note_heard("worker:1")

    assert (is_waiting, predecessor.is_anybody_awaited) == (True, False)


def test_who_has_not_spoken_is_looked_at_now_and_then_and_not_waited_for_without_end() -> None:
    predecessor = Predecessor(["worker:0"])

    looked_at = [list(predecessor.turn(at_ms)) for at_ms in (0, 1, LOOK_EVERY_MS, LONGEST_WAIT_MS)]

    assert looked_at == [["worker:0"], [], ["worker:0"], []]
    assert not predecessor.is_anybody_awaited


def test_the_same_fence_in_the_slot_of_another_queue_says_nothing() -> None:
    predecessor = Predecessor(begun=[ran("default", 7)])

    assert predecessor.accused_with("default", 7)
    assert not predecessor.accused_with("other", 7)
    assert not predecessor.accused_with("default", 8)


# The dispatcher


def ran(queue: str, *fences: int) -> Begun:
    """What the slot of a worker says that ran these when it ended."""
    return Begun(frozenset((mark_of(queue), fence) for fence in fences), frozenset(), None)


def successor(tmp_path: Path, *workers: str, running: list[Begun] | None = None) -> Stage:
    return Stage(tmp_path, Predecessor(workers, running or []))


def greet(stage: Stage, worker: str, *entries: list[Any], task: str = "task", **facts: Any) -> None:  # noqa: ANN401
    known = {"async": False, "once": False, "limited": False, "retries": 3, "queue": "default"}
    stage.mail(PeerAttached(worker))
    ready = WorkerReady({task: known | facts}, {"default": {"weight": 1}}, 1, 1, list(entries))
    stage.mail(ready, worker)


def to(worker: str, posts: list[Post], kind: type) -> list[Any]:
    return [post.mail for post in posts if post.to == worker and isinstance(post.mail, kind)]


def settled(stage: Stage) -> str:
    return str(stage.store.settled)


def test_what_a_worker_holds_is_in_flight_and_is_not_given_to_another(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.store.held = {7: a_record(7)}

    greet(stage, "worker:0", ["default", 7, "task", b""])
    posts = stage.turn()

    assert to("worker:0", posts, StandReady)[0].stale == []
    assert stage.dispatcher.facts()["in_flight"] == 1
    assert not to("worker:0", posts, RunDeliveries)
    assert stage.store.settled == []


def test_what_nobody_holds_is_released_at_the_first_look(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.store.held = {7: a_record(7), 8: a_record(8)}

    greet(stage, "worker:0", ["default", 7, "task", b""])
    stage.turn()
    stage.turn()

    (release,) = stage.store.settled
    assert "8" in map(str, release)
    assert "7" not in map(str, release)


def test_nothing_is_released_while_a_worker_has_not_spoken(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0", "worker:1")
    stage.store.held = {7: a_record(7)}

    greet(stage, "worker:0")
    stage.mail(PeerAttached("worker:1"))
    for _ in range(20):
        stage.turn(passed_ms=500)
    before = list(stage.store.settled)
    greet(stage, "worker:1", ["default", 7, "task", b""])
    stage.turn()
    stage.turn(passed_ms=500)

    assert before == stage.store.settled == []


def test_what_a_silent_worker_is_seen_to_run_is_its_own_however_long_it_is_silent(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0", "worker:1")
    stage.store.held = {7: a_record(7), 8: a_record(8)}
    stage.slots.begin(1, "default", 7, 0)

    greet(stage, "worker:0")
    stage.mail(PeerAttached("worker:1"))
    stage.turn()
    stage.turn(passed_ms=LONGEST_WAIT_MS)
    stage.turn()
    stage.turn()

    (release,) = stage.store.settled
    assert "8" in map(str, release)
    assert "7" not in map(str, release)


def test_a_silent_worker_that_runs_too_long_is_killed(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.slots.begin(0, "default", 7, stage.now_ms - 1)
    stage.mail(PeerAttached("worker:0"))

    assert to(SUPERVISOR, stage.turn(), KillWorker) == [KillWorker("worker:0", "hard time-out")]


def test_a_silent_worker_that_dies_is_judged_by_its_slot(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0", "worker:1")
    stage.store.held = {7: a_record(7)}
    stage.slots.begin(1, "default", 7, 0)
    greet(stage, "worker:0")
    stage.mail(PeerAttached("worker:1"))
    stage.turn()

    stage.mail(WorkerExited("worker:1", "SIGSEGV", 0))
    stage.mail(PeerLost("worker:1"))
    stage.turn()
    stage.turn(passed_ms=EVIDENCE_WAIT_MS)

    assert "'again', 7, '', 0, 1" in settled(stage)  # one crash more


def test_what_ran_in_a_worker_that_died_with_the_dispatcher_counts_as_a_crash(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0", running=[ran("default", 7)])
    stage.store.held = {7: a_record(7), 8: a_record(8)}

    greet(stage, "worker:0")
    stage.turn()
    stage.turn()

    assert "'again', 7, '', 0, 1" in settled(stage)
    assert "'again', 8, '', 0, 0" in settled(stage)


def test_what_is_stale_is_not_to_be_begun_and_goes_to_nobody_when_it_comes_back(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")

    greet(stage, "worker:0", ["default", 7, "task", b""])
    (stand_ready,) = to("worker:0", stage.turn(), StandReady)
    stage.mail(DeliveriesReturned("default", [7]), "worker:0")
    posts = stage.turn()

    assert stand_ready.stale == [["default", 7]]
    assert not to("worker:0", posts, RunDeliveries)
    assert stage.dispatcher.facts()["in_flight"] == 0


def test_what_was_acknowledged_before_it_began_stays_with_its_worker(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")

    greet(stage, "worker:0", ["default", 7, "task", b""], once=True)
    (stand_ready,) = to("worker:0", stage.turn(), StandReady)

    assert stand_ready.stale == []
    assert stage.dispatcher.facts()["in_flight"] == 1


def test_a_report_that_nobody_accepted_is_settled_and_accepted(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.store.held = {7: a_record(7)}

    greet(stage, "worker:0", ["default", 7, "task", b""])
    stage.mail(DeliveriesFinished("default", [7], ["done", 7], {"task": (1, 1.0)}, 41), "worker:0")
    posts = stage.turn()

    assert ("done", 7) in [tuple(each[-2:]) for each in stage.store.settled]
    assert to("worker:0", posts, ReportsAccepted) == [ReportsAccepted([41])]
    assert stage.dispatcher.facts()["in_flight"] == 0


def test_workers_wait_for_their_answer_until_the_server_is_back(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.store.held = {7: a_record(7)}
    stage.store.is_away = True

    greet(stage, "worker:0", ["default", 7, "task", b""])
    before = to("worker:0", [*stage.turn(), *stage.turn(passed_ms=1_000)], StandReady)
    stage.store.is_away = False
    after = to("worker:0", stage.turn(passed_ms=1_000), StandReady)

    assert (len(before), len(after)) == (0, 1)


def test_a_wish_to_cancel_that_nobody_heard_is_passed_on(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.store.held = {7: a_record(7), 8: a_record(8)}
    stage.store.cancelled = {b"id8"}

    greet(stage, "worker:0", ["default", 7, "task", b""], ["default", 8, "task", b""])

    assert to("worker:0", stage.turn(), CancelDelivery) == [CancelDelivery("id8")]


def test_a_queue_that_this_node_does_not_serve_is_no_harm(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")

    greet(stage, "worker:0", ["elsewhere", 7, "task", b""])

    assert to("worker:0", stage.turn(), StandReady)


def test_a_ticket_of_the_dispatcher_before_is_worth_nothing(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.tickets.issue(0, 17)

    stage.tickets.withdraw_all()

    assert not stage.tickets.redeem(0, 17, "default", 900)


def test_a_ticket_that_was_redeemed_stays_so(tmp_path: Path) -> None:
    stage = successor(tmp_path, "worker:0")
    stage.tickets.issue(0, 17)
    stage.tickets.redeem(0, 17, "default", 900)

    stage.tickets.withdraw_all()

    assert stage.tickets.cancel(0, 17) == Redeemed(900, mark_of("default"))


# Acceptance


def test_a_report_is_accepted_with_the_next_work_if_there_is_some(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.hire("worker:0", task={})
    stage.store.line = [a_record(1)]
    stage.turn()
    stage.store.line = [a_record(2)]

    stage.mail(DeliveriesFinished("default", [1], ["done", 1], {"task": (1, 1.0)}, 5), "worker:0")
    posts = stage.turn(passed_ms=1_000)

    assert [mail.accepted for mail in to("worker:0", posts, RunDeliveries)] == [[5]]
    assert not to("worker:0", posts, ReportsAccepted)


def test_a_report_is_not_accepted_while_its_server_is_away(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.hire("worker:0", task={})
    stage.store.line = [a_record(1)]
    stage.turn()
    stage.store.is_away = True

    stage.mail(DeliveriesFinished("default", [1], ["done", 1], {"task": (1, 1.0)}, 5), "worker:0")
    before = to("worker:0", [*stage.turn(), *stage.turn(passed_ms=1_000)], ReportsAccepted)
    stage.store.is_away = False
    after = to("worker:0", stage.turn(passed_ms=1_000), ReportsAccepted)

    assert (before, after) == ([], [ReportsAccepted([5])])


def test_what_ran_beside_others_in_a_worker_that_died_with_the_dispatcher_is_a_suspect() -> None:
    predecessor = Predecessor([], [ran("default", 7, 8), ran("other", 9)])

    assert [predecessor.accused_with("default", fence) for fence in (7, 8, 9)] == [2, 2, 0]
    assert predecessor.accused_with("other", 9) == 1
