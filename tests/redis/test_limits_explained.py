"""What a message that waits for its limits is told to wait for."""

from __future__ import annotations

from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.trace import trace
from tests.support.messages import a_message


def test_whoever_waits_for_a_free_slot_is_told_which_limit_it_is(queue: WorkQueue) -> None:
    waiting = a_message(limits="shop.render:acme<=1")
    queue.enqueue(waiting)

    found = trace(queue, waiting.id)

    assert found is not None
    assert (found.where.state, found.limits) == ("limited", "shop.render:acme<=1")
