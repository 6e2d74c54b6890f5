"""The rate limiter's actor, without a process: for whom it lets messages in."""

from __future__ import annotations

import pytest

from mqworker.actors.mail import Mail, PeerLost, PermitsWanted
from mqworker.actors.rate_limiter import RateLimiter
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from mqworker.testing.memory_connection import MemoryConnection
from tests.support.messages import a_message


class Site:
    """A limiter, and twenty messages of which ten may start at once."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        store = Store(MemoryConnection(self.clock), clock=self.clock)
        self.queue = WorkQueue("q", store)
        self.queue.enqueue(*(a_message(b"x", limits="t=10/1000/10") for _ in range(20)))
        self.limiter = RateLimiter(store, WorkQueueOptions(), get_logger())

    def tell(self, mail: Mail) -> None:
        self.limiter.handle(mail, "dispatcher", self.clock.monotonic_ms())

    def admitted(self, passed_ms: int = 0) -> int:
        self.clock.advance(ms=passed_ms)
        self.limiter.turn(self.clock.monotonic_ms())
        return int(self.limiter.facts()["admitted"])


def test_it_lets_in_as_many_as_there_is_room_for() -> None:
    site = Site()

    site.tell(PermitsWanted("q", 3))

    assert site.admitted() == 3
    assert site.admitted(1_000) == 3


@pytest.mark.parametrize("end", [PermitsWanted("q", 0), PeerLost("dispatcher")], ids=["full", "lost"])
def test_it_lets_in_nothing_that_nobody_would_start(end: Mail) -> None:
    site = Site()
    site.tell(PermitsWanted("q", 15))
    before = site.admitted()

    site.tell(end)

    assert before == 10
    assert site.admitted(1_000) == 10
