"""The dispatcher as a whole, without processes and without Redis: mail in, mail and calls out."""

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.hand_out import LONGEST_WAIT_MS
from mqworker.actors.dispatcher.lost_workers import EVIDENCE_WAIT_MS
from mqworker.actors.dispatcher.queue import LARGEST_CLAIM, Receipt
from mqworker.actors.dispatcher.reconciliation import SECOND_LOOK_MS, STOCK_EVERY_MS
from mqworker.actors.dispatcher.worker_care import ANSWER_WITHIN_MS, ASK_AFTER_MS
from mqworker.actors.dispatcher.workers import Flight, Hand, Idle
from mqworker.actors.mail import (
    AbandonDelivery,
    DeliveriesFinished,
    DeliveriesListed,
    DeliveriesReturned,
    Drain,
    KillWorker,
    ListDeliveries,
    PeerLost,
    PermitsWanted,
    RunDeliveries,
    WorkerExited,
    WorkerReady,
)
from mqworker.errors import StoreRefused
from mqworker.store.store import Store
from tests.support.dispatcher_stage import HELD, Stage, a_record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_unknown_task_goes_out_one_at_a_time(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.store.line = [a_record(number) for number in range(5)]

    posts = stage.turn()

    assert sorted(post.to for post in posts) == ["worker:0", "worker:1"]
    assert [len(cast(RunDeliveries, post.mail).fences) for post in posts] == [1, 1]
    assert len(stage.store.line) == 3


def test_quick_tasks_travel_in_batches_once_their_time_is_known(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(2_000)]
    sizes: list[int] = []
    stage.set_appetite(1)

    while stage.store.line:
        post = stage.turn()[0]
        sizes.append(len(cast(RunDeliveries, post.mail).fences))
        stage.finish("worker:0", post)

    assert sizes[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 250]


def test_what_finds_no_worker_is_given_back_in_order_and_fewer_are_claimed(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={})
    stage.store.line = [a_record(0)]
    stage.finish("worker:0", stage.turn()[0])
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(64)]

    stage.turn(passed_ms=1_000)  # one of them runs, for long
    stage.store.settled.clear()
    stage.turn(passed_ms=LONGEST_WAIT_MS + 1)
    stage.turn()

    (released,) = stage.store.settled
    fences = [int(released[at + 1]) for at, part in enumerate(released) if part == "again"]
    assert len(fences) == 63
    assert fences == sorted(fences), "settle.lua puts the first of them to the very front"
    assert stage.dispatcher._queues["default"]._appetite == 1


def test_what_is_given_back_is_given_back_together_so_that_nothing_overtakes_it(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={}, web={"async": True})
    tasks = stage.dispatcher._crew["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, 1, 50), "worker:0")
    slow = [a_record(number).replace(b" task ", b" slow ") for number in range(4)]
    for number in range(4):  # the first runs; the others come one by one, while the event loop has room
        queue = stage.dispatcher._queues["default"]
        queue._left_over, queue.may_have_messages = 0, True
        stage.store.line = [slow[number]]
        stage.turn(passed_ms=20)
    stage.store.settled.clear()

    stage.turn(passed_ms=LONGEST_WAIT_MS - 30)  # only the oldest is overdue
    stage.turn()

    (released,) = stage.store.settled
    fences = [int(released[at + 1]) for at, part in enumerate(released) if part == "again"]
    assert fences == [2, 3, 4]


def test_what_waits_too_long_is_given_back_though_others_came_after_it(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={}, web={"async": True})
    stage.mail(
        WorkerReady(stage.dispatcher._crew["worker:0"].tasks, {"default": {"weight": 1}}, 1, 50), "worker:0"
    )
    stage.set_appetite(LARGEST_CLAIM)
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(3)]
    stage.turn()  # one runs, two wait

    for number in range(4):  # work for the event loop comes all the time
        stage.store.line = [a_record(10 + number).replace(b" task ", b" web ")]
        stage.turn(passed_ms=1_000)

    released = [settled for settled in stage.store.settled if "again" in settled]
    assert sum(settled.count("again") for settled in released) >= 2


def test_a_busy_node_with_a_free_event_loop_does_not_hoard_what_it_cannot_run(stage: Stage) -> None:
    stage.hire("worker:0", slow={}, web={"async": True})
    tasks = stage.dispatcher._crew["worker:0"].tasks
    stage.mail(WorkerReady(tasks, {"default": {"weight": 1}}, 1, 100), "worker:0")
    stage.set_appetite(1)
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(500)]
    most_held = released = 0

    for _ in range(300):  # three seconds in which one of them runs
        stage.turn(passed_ms=10)
        released = sum(settled.count("again") for settled in stage.store.settled)
        most_held = max(most_held, 500 - len(stage.store.line) - released)

    assert most_held <= 3, "one runs, and one or two are looked at"
    assert released <= 6, "about one a second"
    assert stage.dispatcher.next_turn_in_ms(stage.now_ms) > 0, "and the loop is at rest meanwhile"


def test_a_worker_with_free_threads_is_not_left_out(stage: Stage) -> None:
    stage.hire("worker:0", task={}, slow={})
    hand = stage.dispatcher._crew["worker:0"]
    hand.threads = 4
    stage.store.line = [a_record(number).replace(b" task ", b" slow ") for number in range(2)]

    stage.turn()
    stage.turn()

    assert len(hand.flights) == 2
    assert hand.has_room_alone()


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


def test_what_a_worker_returns_goes_to_another_and_it_is_given_nothing_quick_meanwhile(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(200)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)

    stage.hire("worker:1")
    stage.mail(DeliveriesReturned("default", batch.fences[1:]), "worker:0")
    posts = stage.turn()
    is_slow = stage.dispatcher._crew["worker:0"].is_slow
    stage.mail(DeliveriesFinished("default", batch.fences[:1], ["done"], {}), "worker:0")

    given = [cast(RunDeliveries, post.mail).fences for post in posts]
    assert given == [batch.fences[1:]]
    assert [post.to for post in posts] == ["worker:1"]
    assert is_slow
    assert not stage.dispatcher._crew["worker:0"].is_slow


def test_a_silent_worker_is_asked_what_it_has_and_what_it_does_not_list_comes_back(stage: Stage) -> None:
    batch = a_batch(stage)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    question = cast(ListDeliveries, asked.mail)
    stage.store.settled.clear()

    stage.mail(DeliveriesListed(question.number, {"default": batch.fences[:2]}), "worker:0")
    stage.turn()

    released = [
        int(call[at + 1]) for call in stage.store.settled for at, part in enumerate(call) if part == "again"
    ]
    assert released == batch.fences[2:], "in the order of delivery"
    assert [fence for _, fence in stage.dispatcher._crew["worker:0"].flights] == batch.fences[:2]
    assert stage.dispatcher.facts()["missing"] == len(batch.fences) - 2


def test_what_was_handed_out_after_the_question_is_not_missed_in_the_answer(stage: Stage) -> None:
    batch = a_batch(stage, 3)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    hand = stage.dispatcher._crew["worker:0"]
    hand.take(900, Flight("default", a_record(9), 1.0, is_alone=False, is_async=False))

    stage.mail(
        DeliveriesListed(cast(ListDeliveries, asked.mail).number, {"default": batch.fences}), "worker:0"
    )

    assert [fence for _, fence in hand.flights] == [*batch.fences, 900]


def test_a_list_that_nobody_asked_for_or_that_comes_twice_takes_nothing_away(stage: Stage) -> None:
    batch = a_batch(stage, 3)
    (asked,) = stage.turn(passed_ms=ASK_AFTER_MS)
    number = cast(ListDeliveries, asked.mail).number

    stage.mail(DeliveriesListed(number + 1, {}), "worker:0")
    stage.mail(DeliveriesListed(number, {"default": batch.fences}), "worker:0")
    stage.mail(DeliveriesListed(number, {}), "worker:0")

    assert [fence for _, fence in stage.dispatcher._crew["worker:0"].flights] == batch.fences


def test_an_idle_worker_that_does_not_answer_is_killed_and_named_before(stage: Stage) -> None:
    a_batch(stage)
    stage.turn(passed_ms=ASK_AFTER_MS)

    early = stage.turn(passed_ms=ANSWER_WITHIN_MS - 1)
    facts = stage.dispatcher.facts()
    posts = stage.turn(passed_ms=1)

    assert early == []
    assert facts["unanswered_ms"] == {"worker:0": ANSWER_WITHIN_MS - 1}
    assert facts["busy"] == []
    assert [post.mail.worker for post in posts if isinstance(post.mail, KillWorker)] == ["worker:0"]


def test_a_worker_that_runs_a_task_and_does_not_answer_is_left_alone(stage: Stage) -> None:
    batch = a_batch(stage)
    stage.slots.begin(0, "default", batch.fences[0], 0)
    stage.turn(passed_ms=ASK_AFTER_MS)

    posts = stage.turn(passed_ms=10 * ANSWER_WITHIN_MS)

    assert posts == []
    assert stage.dispatcher.facts()["busy"] == ["worker:0"]


def a_batch(stage: Stage, count: int = 8) -> RunDeliveries:
    """Quick deliveries in the hands of one worker; nothing more is claimed."""
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(count + 1)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)
    assert len(batch.fences) == count
    return batch


def test_what_must_run_alone_is_not_starved_by_quick_ones_on_an_overloaded_node(stage: Stage) -> None:
    """Each report makes room for more of the quick ones, so that no worker is ever idle by itself."""
    stage.hire("worker:0", "worker:1", task={}, slow={})
    slow = a_record(7).replace(b" task ", b" slow ")
    stage.store.line = [a_record(number) for number in range(600)]
    held: dict[str, list[int]] = {"worker:0": [], "worker:1": []}
    waits_since_ms, claims, was_claimed = 0, 0, False
    for turn in range(400):
        if turn == 40:
            stage.store.line = [slow, *stage.store.line]
            waits_since_ms = stage.now_ms
        for post in stage.turn(passed_ms=10):
            if not isinstance(post.mail, RunDeliveries):
                continue  # a report was accepted
            if slow in post.mail.records:
                break
            held[post.to] += post.mail.fences
        else:
            stage.store.line += [a_record(number) for number in range(600 - len(stage.store.line))]
            claims += was_claimed is False and turn > 40 and slow not in stage.store.line
            was_claimed = slow not in stage.store.line
            for worker, fences in held.items():
                done, held[worker] = fences[:5], fences[5:]  # half a millisecond of work in ten: overloaded
                if done:
                    stage.mail(
                        DeliveriesFinished("default", done, ["done"], {"task": (len(done), 0.05)}), worker
                    )
            if any("again" in call for call in stage.store.settled):
                stage.store.line = [slow, *stage.store.line]
            stage.store.settled.clear()
            continue
        break
    waited_ms = stage.now_ms - waits_since_ms
    assert waited_ms <= 1_000, f"it waited {waited_ms} ms and was claimed {claims} times"
    assert claims <= 2


def test_of_a_dead_workers_deliveries_only_the_running_one_is_counted_as_a_crash(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(number) for number in range(4)]
    stage.finish("worker:0", stage.turn()[0])
    batch = cast(RunDeliveries, stage.turn()[0].mail)
    stage.slots.begin(0, "default", batch.fences[1], 0)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()

    arguments = stage.store.settled[-1]
    verdicts = [
        arguments[at : at + 5] for at in range(len(arguments) - 5 * len(batch.fences), len(arguments), 5)
    ]
    assert verdicts == [
        ("again", batch.fences[0], "", 0, 0),
        ("again", batch.fences[1], "", 0, 1),
        ("again", batch.fences[2], "", 0, 0),
    ]


def test_two_queues_that_give_out_the_same_fence_are_not_mixed_up(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.mail(WorkerReady({}, {"default": {"weight": 1}, "mail": {"weight": 1}}, 2, 1), "worker:0")
    hand = stage.dispatcher._crew["worker:0"]
    for queue in ("default", "mail"):
        hand.take(7, Flight(queue, a_record(1), 1.0, is_alone=False, is_async=False))

    stage.mail(DeliveriesFinished("mail", [7], ["done", 7], {}), "worker:0")

    assert list(hand.flights) == [("default", 7)]


def test_a_worker_that_comes_back_before_the_cause_is_known_does_not_hide_what_was_lost(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    stage.turn()

    stage.mail(PeerLost("worker:0"))
    stage.hire("worker:0")
    stage.turn()
    settled_early = list(stage.store.settled)
    stage.turn(passed_ms=EVIDENCE_WAIT_MS)

    assert settled_early == []
    assert len(stage.store.settled) == 1


def test_a_worker_whose_pipe_broke_is_killed_before_its_work_is_given_away(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.turn()
    stage.mail(PeerLost("worker:0"))

    posts = stage.turn(passed_ms=EVIDENCE_WAIT_MS)
    settled_early = list(stage.store.settled)
    stage.mail(WorkerExited("worker:0", "its pipe broke (SIGKILL)", 0))
    stage.turn()

    assert posts == [Post(SUPERVISOR, KillWorker("worker:0", "its pipe broke"))]
    assert settled_early == []
    assert len(stage.store.settled) == 1


def test_what_the_server_thinks_we_hold_and_nobody_knows_of_is_released(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.turn()
    stage.store.held = {1: a_record(0), 700: a_record(7)}

    stage.turn(passed_ms=STOCK_EVERY_MS)
    stage.turn()
    settled_early = list(stage.store.settled)
    stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn()

    assert settled_early == []
    assert len(stage.store.settled) == 1
    assert 700 in stage.store.settled[0]


def test_a_worker_is_told_once_of_what_the_server_gave_to_somebody_else(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1", task={}, once={"once": True})
    stage.store.line = [a_record(0), a_record(1), a_record(2).replace(b" task ", b" once ")]
    stage.turn()
    stage.turn()
    stage.store.held = {1: a_record(0)}

    posts = [post for _ in range(4) for post in stage.turn(passed_ms=STOCK_EVERY_MS)]

    lost = [post for post in posts if isinstance(post.mail, AbandonDelivery)]
    assert [post.mail for post in lost] == [AbandonDelivery("default", 2)]


def test_what_runs_at_most_once_is_never_lost(stage: Stage) -> None:
    stage.hire("worker:0", once={"once": True})
    stage.store.line = [a_record(2).replace(b" task ", b" once ")]
    for _ in range(3):
        stage.turn()
    in_flight = stage.dispatcher.facts()["in_flight"]

    posts = [post for _ in range(2) for post in stage.turn(passed_ms=STOCK_EVERY_MS)]

    assert in_flight == 1
    assert not any(isinstance(post.mail, AbandonDelivery) for post in posts)


def test_idle_workers_are_offered_with_the_claim(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")

    stage.turn()

    assert [len(tickets) for tickets in stage.store.offers] == [2]


def test_what_was_handed_over_goes_to_a_worker_without_a_word_to_the_server(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()
    stage.store.attempts.clear()

    stage.hand_over(900, a_record(9))
    posts = stage.turn()

    assert [post.mail for post in posts] == [RunDeliveries("default", [900], [a_record(9)])]
    assert stage.store.attempts == []


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


def test_what_was_handed_over_and_is_on_its_way_has_not_strayed(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.store.held = {900: a_record(9)}
    stage.turn(passed_ms=STOCK_EVERY_MS)

    stage.hand_over(900, a_record(9))
    posts = stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn()

    assert cast(RunDeliveries, posts[0].mail).fences == [900]
    assert stage.store.settled == []


def test_what_comes_after_it_was_given_up_is_not_run(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.store.held = {900: a_record(9)}
    stage.turn(passed_ms=STOCK_EVERY_MS)
    stage.turn(passed_ms=SECOND_LOOK_MS)

    stage.hand_over(900, a_record(9))
    posts = stage.turn()

    assert 900 in stage.store.settled[0]
    assert posts == []


def test_nothing_is_handed_over_to_a_dispatcher_that_drains(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    before = stage.store.channels
    stage.mail(Drain(1_000))
    stage.turn()

    assert HELD in before
    assert HELD not in stage.store.channels, "whoever hands over sees that nobody listens"


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
    queue.add_settlement([1], Receipt(Hand("worker:0"), 1))

    exchange = queue.next_exchange(cast(Store, stage.store), -3, Idle(), lambda _most: [], 0)
    assert exchange is not None
    claimed = queue.complete([0], 0)

    assert claimed == []


def test_what_may_run_once_is_acknowledged_when_somebody_is_free_and_not_before(stage: Stage) -> None:
    stage.hire("worker:0", task={"once": True})
    stage.store.line = [a_record(0)]
    stage.turn()
    first = stage.turn()[0]
    stage.finish("worker:0", first)
    stage.store.settled.clear()
    stage.store.line = [a_record(number) for number in range(1, 6)]

    stage.turn()
    handed = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    acked_before_drain = len(stage.store.settled)
    stage.mail(Drain(1_000))
    stage.turn()
    stage.turn()

    assert [len(cast(RunDeliveries, post.mail).fences) for post in handed] == [1]
    assert acked_before_drain == 2  # the first one's report, and the ack of the one that was handed out
    assert stage.store.settled[-1].count("again") == 4  # the others were released


def test_what_may_run_once_and_was_acknowledged_is_not_given_back(stage: Stage) -> None:
    """The ack took as long as an outage, and the worker it was for is gone: no line has it any more."""
    stage.hire("worker:0", task={"once": True})
    stage.store.line = [a_record(0)]
    stage.turn()
    stage.store.is_away = True
    stage.turn()
    stage.mail(PeerLost("worker:0"))
    stage.store.is_away = False

    for _ in range(4):
        stage.turn(passed_ms=2_000)
    stage.hire("worker:1", task={"once": True})
    handed = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]

    assert not any("again" in settlement for settlement in stage.store.settled)
    assert [post.to for post in handed] == ["worker:1"]


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
        a_record(1).replace(b"0--3", b"0-g3").replace(b"task body", b"task 70;t=1/1000/1 body")
    ]

    (post,) = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]

    mail = cast(RunDeliveries, post.mail)
    assert mail.start_by_ms == {mail.fences[0]: stage.now_ms + 70}


def test_what_runs_at_most_once_is_not_acknowledged_when_its_permit_has_ended(stage: Stage) -> None:
    stage.hire("worker:0", task={"limited": True, "once": True})
    records = [a_record(number).replace(b"0--3", b"0-g3") for number in range(2)]
    stage.store.line = [record.replace(b"task body", b"task 70;t=1/1000/1 body") for record in records]
    stage.turn()  # one is acknowledged and handed out, the other waits for the worker

    stage.turn(passed_ms=75)
    stage.turn()

    assert [len(arguments) for arguments in stage.store.settled if "again" in arguments] != []


def test_what_crashed_before_runs_with_nothing_beside_it(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.finish("worker:0", stage.turn()[0])
    stage.store.line = [a_record(1), a_record(2, crashes=1), a_record(3)]

    stage.turn(passed_ms=1_000)
    first = stage.dispatcher.facts()["in_flight"]

    assert first == 2, "the suspect waits until the worker's hands are empty"


def test_a_hard_time_out_asks_the_supervisor_to_kill_that_worker(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    fence = cast(RunDeliveries, stage.turn()[0].mail).fences[0]
    stage.slots.begin(0, "default", fence, stage.now_ms + 50)

    early = stage.turn(passed_ms=49)
    late = stage.turn(passed_ms=2)

    assert Post(SUPERVISOR, KillWorker("worker:0", "hard time-out")) not in early
    assert Post(SUPERVISOR, KillWorker("worker:0", "hard time-out")) in late


def test_a_drain_claims_nothing_more_and_ends_when_all_is_settled(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1), a_record(2)]
    running = stage.turn()[0]

    stage.mail(Drain(1_000))
    stage.turn()
    is_done_early = stage.dispatcher.is_done
    stage.finish("worker:0", running)
    stage.turn()
    stage.turn()

    assert not is_done_early
    assert stage.dispatcher.is_done
    assert len(stage.store.line) == 1


def test_a_drain_that_takes_too_long_kills_the_worker_and_releases_uncounted(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(1)]
    fence = cast(RunDeliveries, stage.turn()[0].mail).fences[0]
    stage.slots.begin(0, "default", fence, 0)

    stage.mail(Drain(100))
    late = stage.turn(passed_ms=101)
    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()
    stage.turn()

    assert Post(SUPERVISOR, KillWorker("worker:0", "drain")) in late
    assert stage.store.settled[-1][-5:] == ("again", fence, "", 0, 0)
    assert stage.dispatcher.is_done


def test_what_no_worker_knows_is_parked_without_asking_one(stage: Stage) -> None:
    stage.hire("worker:0", task={})
    stage.store.line = [a_record(1).replace(b" task ", b" gone "), a_record(2)]

    posts = [*stage.turn(), *stage.turn()]

    handed = [post.mail.records for post in posts if isinstance(post.mail, RunDeliveries)]
    assert handed == [[a_record(2)]]
    (parked,) = [settled for settled in stage.store.settled if "park" in settled]
    at = parked.index("park")
    assert parked[at + 3] == "-", "the mark of an unknown task"
