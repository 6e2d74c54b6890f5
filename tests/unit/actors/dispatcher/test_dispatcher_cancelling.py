"""Who is told that a message was cancelled, and whose worker is killed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqworker.actors.actor import SUPERVISOR, Post
from mqworker.actors.dispatcher.cancelling import Stop, posts_to_stop, stop_in
from mqworker.actors.dispatcher.workers import Crew, Flight
from mqworker.actors.mail import CancelDelivery, KillWorker
from mqworker.actors.run_slot import RunSlots

TOLD = [Post("worker:1", CancelDelivery("m1"))]
KILLED = Post(SUPERVISOR, KillWorker("worker:1", "cancelled"))


@pytest.fixture
def slots(tmp_path: Path) -> RunSlots:
    return RunSlots(str(tmp_path / "slots"))


def a_crew(*, is_async: bool = False) -> Crew:
    crew = Crew()
    crew.join("worker:0").take(1, Flight("mail", a_record("m10"), 1.0, is_alone=False, is_async=False))
    crew.join("worker:1").take(2, Flight("mail", a_record("m1"), 1.0, is_alone=False, is_async=is_async))
    return crew


def a_record(message: str) -> bytes:
    return b"1700000000000" + b"0--300000000" + message.encode() + b" shop.send body"


def test_a_wake_up_is_a_wish_to_stop_or_something_else() -> None:
    assert stop_in(b"cancel m1") == Stop(b"m1", is_kill=False)
    assert stop_in(b"kill m1") == Stop(b"m1", is_kill=True)
    assert stop_in(b"ready") is None


def test_only_who_has_the_message_is_told(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"m1", is_kill=False), a_crew(), slots)) == TOLD


def test_a_worker_is_killed_for_what_it_runs(slots: RunSlots) -> None:
    slots.begin(1, "mail", 2, 0)

    assert list(posts_to_stop(Stop(b"m1", is_kill=True), a_crew(), slots)) == [*TOLD, KILLED]


def test_a_worker_is_not_killed_for_what_waits_behind_something_else(slots: RunSlots) -> None:
    slots.begin(1, "mail", 77, 0)

    assert list(posts_to_stop(Stop(b"m1", is_kill=True), a_crew(), slots)) == TOLD


def test_of_what_runs_on_an_event_loop_the_worker_is_killed(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"m1", is_kill=True), a_crew(is_async=True), slots)) == [*TOLD, KILLED]


def test_a_wish_without_a_message_reaches_nobody(slots: RunSlots) -> None:
    assert list(posts_to_stop(Stop(b"", is_kill=True), a_crew(), slots)) == []
