"""The server's view of what is held, against the dispatcher's."""

from pathlib import Path
from typing import cast

import pytest

from mqworker.actors.dispatcher.reconciliation import RECONCILE_EVERY_MS, SECOND_LOOK_MS
from mqworker.actors.mail import (
    AbandonDelivery,
    RunDeliveries,
)
from tests.support.dispatcher_stage import Stage, a_record


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_what_the_server_thinks_we_hold_and_nobody_knows_of_is_released(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.store.line = [a_record(0)]
    stage.turn()
    stage.store.held = {1: a_record(0), 700: a_record(7)}

    stage.turn(passed_ms=RECONCILE_EVERY_MS)
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

    posts = [post for _ in range(4) for post in stage.turn(passed_ms=RECONCILE_EVERY_MS)]

    lost = [post for post in posts if isinstance(post.mail, AbandonDelivery)]
    assert [post.mail for post in lost] == [AbandonDelivery("default", 2)]


def test_what_runs_at_most_once_is_never_lost(stage: Stage) -> None:
    stage.hire("worker:0", once={"once": True})
    stage.store.line = [a_record(2).replace(b" task ", b" once ")]
    for _ in range(3):
        stage.turn()
    in_flight = stage.dispatcher.facts()["in_flight"]

    posts = [post for _ in range(2) for post in stage.turn(passed_ms=RECONCILE_EVERY_MS)]

    assert in_flight == 1
    assert not any(isinstance(post.mail, AbandonDelivery) for post in posts)


def test_what_was_handed_over_and_is_on_its_way_has_not_strayed(stage: Stage) -> None:
    stage.hire("worker:0")
    stage.turn()
    stage.store.held = {900: a_record(9)}
    stage.turn(passed_ms=RECONCILE_EVERY_MS)

    stage.hand_over(900, a_record(9))
    posts = stage.turn(passed_ms=SECOND_LOOK_MS)
    stage.turn()

    assert cast(RunDeliveries, posts[0].mail).fences == [900]
    assert stage.store.settled == []
