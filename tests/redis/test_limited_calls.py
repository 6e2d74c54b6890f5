"""What a queue calls out when limited messages begin to wait."""

from __future__ import annotations

from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.messages import a_message

WAIT_S = 5.0


def test_the_first_limited_message_that_waits_is_called_out_and_no_other(
    store: Store, queue: WorkQueue
) -> None:
    combinations = ("t=10/1000/10", "t=10/1000/10", "u=10/1000/10")
    listening = store.connection.subscribe([queue.calls.keys.meta])
    try:
        for _ in range(2):  # again after nothing waited any more
            queue.enqueue(*(a_message(b"x", limits=each) for each in combinations))
            store.run(queue.calls.admit(3))
        heard = [text for _, text in iter(lambda: listening.get(0.2), None)]
    finally:
        listening.close()

    assert heard.count(b"limited") == 2
