"""The dispatcher as a whole, without processes and without Redis: mail in, mail and calls out."""

import json
from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.reconciliation import RECONCILE_EVERY_MS, SECOND_LOOK_MS
from mqworker.actors.mail import (
    Drain,
    KillWorker,
    PeerLost,
    RunDeliveries,
    WorkerExited,
)
from tests.support.dispatcher_stage import HELD, Stage, a_record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_was_handed_over_goes_to_a_worker_without_a_word_to_the_server(stage: Stage) -> None:
    stage.hire("worker:0", "worker:1")
    stage.turn()
    stage.store.attempts.clear()

    stage.hand_over(900, a_record(9))
    posts = stage.turn()

    assert [post.mail for post in posts] == [RunDeliveries("default", [900], [a_record(9)])]
    assert stage.store.attempts == []


def test_what_comes_after_it_was_given_up_is_not_run(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.store.held = {900: a_record(9)}
    stage.turn(passed_ms=RECONCILE_EVERY_MS)
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


def test_a_drain_counts_the_cut_whoever_killed_the_worker_first(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    stage.hire("worker:0", "worker:1")
    stage.store.line = [a_record(1), a_record(2)]
    given = [cast(RunDeliveries, post.mail).fences[0] for post in stage.turn()]
    for slot, fence in enumerate(given):
        stage.slots.begin(slot, "default", fence, 0)

    stage.mail(Drain(100))
    stage.turn()
    stage.mail(PeerLost("worker:0"))  # the supervisor was quicker with this one
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()
    stage.turn(passed_ms=101)
    stage.mail(PeerLost("worker:1"))
    stage.mail(WorkerExited("worker:1", "SIGKILL", 0))
    stage.turn()
    stage.turn()

    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    cut = [(each["deliveries"], each["workers"]) for each in said if each["event"] == "drain_cut"]
    assert stage.dispatcher.is_done
    assert cut == [(2, 2)]
