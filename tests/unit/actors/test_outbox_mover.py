"""The mover's actor: what it tells, how it ends, and that a database which hangs never holds up its loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from mqworker.actors.mail import Drain
from mqworker.actors.outbox_mover import STUCK_MS, MoverThread, OutboxMoverActor
from mqworker.errors import StoreUnavailable
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.store.store import Store
from mqworker.tasks.outbox.mover import OutboxMover
from mqworker.tasks.outbox.rows import Waiting
from tests.support.deadline import wait_until


class FakeMover:
    """Rows that are moved at once, unless the database hangs."""

    outbox = "shop"
    moved = 0

    def __init__(self, waiting: Waiting, troubles: dict[str, str] | None = None) -> None:
        self._waiting, self._troubles = waiting, troubles or {}

    def move(self) -> int:
        return 0

    def delete_moved(self) -> int:
        return 0

    def waiting(self) -> Waiting:
        return self._waiting

    def troubles(self) -> dict[str, str]:
        return self._troubles


class FakeStore:
    """One key, which another node may hold."""

    def __init__(self, holder: bytes = b"n") -> None:
        self.holder = holder

    def send(self, commands: list[tuple[object, ...]], _key: str) -> list[object]:
        return [None, self.holder][: len(commands)]


def actor_of(
    open_mover: Callable[[], object], clock: ManualClock, store: FakeStore | None = None
) -> OutboxMoverActor:
    thread = MoverThread(
        cast("Callable[[], OutboxMover]", open_mover),
        cast("Store", store or FakeStore()),
        namespace="mqw",
        holder="n",
        poll_ms=10,
        clock=clock,
        log=get_logger(),
    )
    return OutboxMoverActor(thread, clock)


def told(actor: OutboxMoverActor) -> dict[str, object]:
    facts: dict[str, object] = actor.facts()["outbox"]
    return facts


def end(actor: OutboxMoverActor, clock: ManualClock) -> None:
    actor.handle(Drain(1_000), "supervisor", clock.monotonic_ms())
    wait_until(lambda: (list(actor.turn(clock.monotonic_ms())), actor.is_done)[1], "it has ended")


def test_it_tells_how_many_rows_wait_and_for_how_long() -> None:
    clock = ManualClock()
    actor = actor_of(lambda: FakeMover(Waiting(7, 1_500, 1, "no call")), clock)

    wait_until(lambda: told(actor)["rows"] == 7, "it has looked")

    assert (told(actor)["lag_ms"], told(actor)["bad"], told(actor)["trouble"]) == (1_500, 1, "")
    end(actor, clock)


def test_a_queue_that_takes_nothing_is_named() -> None:
    clock = ManualClock()
    actor = actor_of(lambda: FakeMover(Waiting(7, 1, 0, ""), {"mail": "it is full"}), clock)

    wait_until(lambda: told(actor)["trouble"] == "queue mail takes nothing: it is full", "it says so")
    end(actor, clock)


def test_it_stands_by_while_another_node_moves() -> None:
    clock = ManualClock()
    actor = actor_of(lambda: FakeMover(Waiting(7, 1, 0, "")), clock, FakeStore(b"other"))

    wait_until(lambda: told(actor)["is_standby"], "it stands by")
    assert told(actor)["rows"] == 0
    end(actor, clock)


def test_a_database_that_is_away_is_told_without_its_password() -> None:
    clock = ManualClock()

    def refuse() -> object:
        raise StoreUnavailable("the database did not answer: postgresql://me:hidden@db/shop")

    actor = actor_of(refuse, clock)

    wait_until(lambda: "did not answer" in str(told(actor)["trouble"]), "it says so")
    assert "hidden" not in str(told(actor))
    end(actor, clock)


def test_a_database_that_hangs_is_told_and_ends_the_process_after_a_minute() -> None:
    clock, may_go_on = ManualClock(), threading.Event()
    actor = actor_of(lambda: (may_go_on.wait(60), FakeMover(Waiting(0, 0, 0, "")))[1], clock)

    clock.advance(ms=10_000)
    list(actor.turn(clock.monotonic_ms()))
    lag_ms = told(actor)["lag_ms"]
    clock.advance(ms=STUCK_MS)

    assert lag_ms == 10_000
    with pytest.raises(StoreUnavailable, match="has not answered for 60 s"):
        actor.turn(clock.monotonic_ms())
    may_go_on.set()
    end(actor, clock)
