"""Batches as a dispatcher without processes hands them out: claimed, gathered, halved and given back."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.actor import Post
from mqworker.actors.mail import Drain, PeerLost, RunDeliveries, WorkerExited
from tests.support.dispatcher_stage import Stage, a_record

LOAD = {"batch": [4, 200, False]}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    made = Stage(tmp_path)
    made.hire("worker:0", "worker:1", task=LOAD)
    return made


def handed_out(posts: list[Post]) -> list[tuple[str, list[int], bool]]:
    mails = [(post.to, post.mail) for post in posts if isinstance(post.mail, RunDeliveries)]
    return [(to, mail.fences, mail.are_together) for to, mail in mails]


def test_full_batches_go_out_at_once_and_the_rest_waits_for_others(stage: Stage) -> None:
    stage.store.line = [a_record(number) for number in range(1, 8)]

    assert handed_out(stage.turn()) == [("worker:0", [1, 2, 3, 4], True)]
    assert stage.dispatcher.facts()["gathering"] == 3
    assert stage.dispatcher.next_turn_in_ms(stage.now_ms) <= 200
    assert handed_out(stage.turn(passed_ms=199)) == []
    assert handed_out(stage.turn(passed_ms=1)) == [("worker:1", [5, 6, 7], True)]


def test_no_more_is_claimed_than_fills_the_batches_of_workers_that_could_run_one(stage: Stage) -> None:
    stage.store.line = [a_record(number) for number in range(1, 100)]

    first = [*stage.turn(), *stage.turn(), *stage.turn()]

    assert [fences for _, fences, _ in handed_out(first)] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert len(stage.store.line) == 99 - 8
    stage.turn(passed_ms=50)
    assert len(stage.store.line) == 99 - 8


def test_a_batch_that_kills_its_worker_runs_again_in_halves_with_nothing_beside_it(stage: Stage) -> None:
    stage.store.line = [a_record(number) for number in range(1, 5)]
    (post,) = [post for post in stage.turn() if isinstance(post.mail, RunDeliveries)]
    stage.slots.begin_together(0, "default", 1, 0)

    stage.mail(PeerLost("worker:0"))
    stage.mail(WorkerExited("worker:0", "SIGKILL", 0))
    stage.turn()

    (arguments,) = stage.store.settled
    assert cast(RunDeliveries, post.mail).fences == [1, 2, 3, 4]
    marks = [arguments[at + 4] for at in range(len(arguments)) if arguments[at] == "again"]
    assert marks == ["A"] * 4
    suspects = [a_record(number)[:24] + b"A" + a_record(number)[25:] for number in range(1, 5)]
    stage.store.line = [suspects[0], suspects[1], suspects[2], suspects[3]]
    posts = [*stage.turn(passed_ms=1_000), *stage.turn(), *stage.turn()]
    assert handed_out(posts) == [("worker:1", [5, 6], True)]


def test_what_is_gathered_is_given_back_when_the_node_drains(stage: Stage) -> None:
    stage.store.line = [a_record(number) for number in range(1, 4)]
    stage.turn()
    assert stage.dispatcher.facts()["gathering"] == 3

    stage.mail(Drain(5_000))
    stage.turn()
    stage.turn()

    assert stage.dispatcher.facts()["gathering"] == 0
    assert len(stage.store.settled) == 1


def test_what_is_handed_over_for_an_early_start_is_gathered_like_the_rest(stage: Stage) -> None:
    stage.turn()
    stage.hand_over(7, a_record(7))

    assert handed_out(stage.turn()) == []
    assert stage.dispatcher.facts()["gathering"] == 1
    assert handed_out(stage.turn(passed_ms=200)) == [("worker:0", [7], False)]
