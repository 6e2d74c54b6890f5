"""Messages near the limit of size: a claim takes as many as fit, in order, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from mqworker.model.delivery import Delivery
from mqworker.model.instant import After
from mqworker.model.message import LARGEST_BODY_BYTES, Message
from mqworker.model.names import MessageId
from mqworker.model.settlement import Ack
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.connection import Connection
from mqworker.store.store import Store

COUNT = 24
FIT = 8


def plain(number: int) -> Message:
    return Message(MessageId(f"m{number}"), bytes([number]) * (LARGEST_BODY_BYTES - 1_000))


def with_deadline(number: int) -> Message:
    return replace(plain(number), deadline=After(600_000))


@pytest.mark.parametrize("make", [plain, with_deadline])
def test_a_claim_takes_as_many_as_fit_in_order(
    connection: Connection, make: Callable[[int], Message]
) -> None:
    queue = WorkQueue("long", Store(connection))
    for number in range(COUNT):
        queue.enqueue(make(number))

    seen: list[int] = []
    sizes: list[int] = []
    while claimed := queue.claim(COUNT):
        deliveries = [each for each in claimed if isinstance(each, Delivery)]
        sizes.append(len(deliveries))
        seen += [delivery.body[0] for delivery in deliveries]
        queue.settle(*(Ack(delivery) for delivery in deliveries))

    assert seen == list(range(COUNT))
    assert sizes == [FIT] * (COUNT // FIT)
