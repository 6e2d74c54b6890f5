"""Bulk: all that fit and no other, once each, whatever happens half way; counted before, noted after."""

from __future__ import annotations

import pytest

from mqworker.errors import InvalidArgument, UnknownQueue
from mqworker.model.envelope import CallOptions, encode_call
from mqworker.model.instant import After
from mqworker.model.names import TaskName
from mqworker.model.settlement import Bury, Failure
from mqworker.operate.audit import read_audit
from mqworker.operate.bulk import Bulk, Progress, preview_bulk, run_bulk
from mqworker.operate.system import System
from tests.support.messages import a_message

CHARGE = TaskName("shop.charge")


def enqueue(
    system: System, count: int, *, tenant: str = "acme", tag: str = "", **options: object
) -> list[str]:
    extra = CallOptions(tags=(tag,)) if tag else None
    body = encode_call([], {"tenant": tenant}, extra)
    messages = [a_message(body, task=CHARGE, **options) for _ in range(count)]
    system.open_queue("mail").enqueue(*messages)
    return [message.id for message in messages]


def bury(system: System, count: int, *, tenant: str = "acme", error: str = "TimeoutError") -> list[str]:
    queue, ids = system.open_queue("mail"), enqueue(system, count, tenant=tenant)
    for start in range(0, count, 500):
        deliveries = queue.claim(min(500, count - start))
        queue.settle(*[Bury(each, "retries", Failure(error, "the bank")) for each in deliveries])
    return ids


def test_all_dead_letters_that_fit_go_back_and_no_other(system: System) -> None:
    bury(system, 1_700)
    bury(system, 300, tenant="other")
    bulk = Bulk("retry", "queue:mail args.tenant:acme error:timeout")

    found = preview_bulk(system, bulk)
    outcome = run_bulk(system, found.bulk, "ann")

    counts = system.open_queue("mail").counts()
    assert (found.count, found.is_complete) == (1_700, True)
    assert (counts.ready, counts.dead) == (1_700, 300)
    assert outcome == "1,700 jobs back in line"
    newest, before = read_audit(system)[:2]
    assert (newest.deed.count, newest.deed.who, before.deed.outcome) == (1_700, "ann", "began")
    assert f"--before {found.bulk.before_ms}" in before.deed.command


def test_one_that_was_interrupted_and_is_given_again_does_the_rest_and_nothing_twice(system: System) -> None:
    bury(system, 400)
    queue = system.open_queue("mail")
    bulk = preview_bulk(system, Bulk("retry", "args.tenant:acme")).bulk
    progress = Progress()
    progress.stop()

    first = run_bulk(system, bulk, "ann", progress)
    died_again = queue.claim(50)
    queue.settle(*[Bury(each, "retries", Failure("TimeoutError", "again")) for each in died_again])
    second = run_bulk(system, bulk, "ann")

    assert first == "stopped after 100 jobs back in line"
    assert second == "300 jobs back in line"
    assert queue.counts().dead == 50  # died after the instant of the bulk: not meant
    assert run_bulk(system, bulk, "ann") == "0 jobs back in line"


def test_waiting_jobs_are_cancelled_wherever_they_wait_and_running_ones_are_asked(system: System) -> None:
    queue = system.open_queue("mail")
    (running,) = enqueue(system, 1)
    queue.claim(consumer="web.a.1")
    mine = [*enqueue(system, 700), *enqueue(system, 5, priority=3), *enqueue(system, 5, due=After(60_000))]
    others = [*enqueue(system, 200, tenant="other"), *enqueue(system, 3, tenant="other", priority=3)]
    mine += [*enqueue(system, 100), *enqueue(system, 4, limits="shop.charge=1/60000/1")]

    outcome = run_bulk(system, Bulk("cancel", "args.tenant:acme"), "ann")

    assert outcome == "815 jobs cancelled, or asked to stop"
    assert {queue.find(each).state for each in mine} == {"cancelled"}
    assert {queue.find(each).state for each in others} == {"ready"}
    assert queue.store.send([("HGET", queue.calls.keys.named("results"), running)], None) == [b"X"]


def test_dropping_takes_only_dead_letters_that_fit(system: System) -> None:
    bury(system, 600)
    bury(system, 20, error="KeyError")

    run_bulk(system, Bulk("drop", "error:timeout"), "ann")

    assert system.open_queue("mail").counts().dead == 20


def test_a_bulk_by_tag_leaves_untagged_calls_alone(system: System) -> None:
    enqueue(system, 7, tag="import")
    plain = enqueue(system, 3)

    assert preview_bulk(system, Bulk("cancel", "tag:import")).count == 7
    run_bulk(system, Bulk("cancel", "tag:import"), "ann")

    assert {system.open_queue("mail").find(each).state for each in plain} == {"ready"}


def test_a_rate_is_kept(system: System) -> None:
    bury(system, 150)
    bulk = Bulk("retry", "queue:mail", rate=100)
    progress = Progress()
    rested: list[float] = []

    class Noting(Progress):
        def rest(self, seconds: float) -> None:
            rested.append(seconds)

    run_bulk(system, bulk, "ann", progress := Noting())

    assert progress.done == 150
    assert max(rested) > 0.9  # the first hundred took the first second


@pytest.mark.parametrize(
    ("bulk", "words"),
    [
        (Bulk("retry", ""), "empty"),
        (Bulk("retry", "state:ready"), "accepted for retry are dead"),
        (Bulk("cancel", "state:dead"), "accepted for cancel are ready, delayed, limited, leased"),
        (Bulk("burn", "queue:mail"), "accepted are retry, drop, cancel"),
        (Bulk("drop", "queue:mail", rate=0), "accepted are 1 to"),
        (Bulk("drop", "nonsense:mail"), "accepted are state"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_accepted(
    system: System, bulk: Bulk, words: str
) -> None:
    enqueue(system, 1)

    with pytest.raises(InvalidArgument, match=words):
        preview_bulk(system, bulk)
    with pytest.raises(InvalidArgument, match=words):
        run_bulk(system, bulk, "ann")


def test_a_queue_that_does_not_exist_is_told_at_once(system: System) -> None:
    with pytest.raises(UnknownQueue):
        preview_bulk(system, Bulk("drop", "queue:mial"))
