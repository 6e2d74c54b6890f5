"""Broker and recovery scanner by hand, among thousands of queues: what is due is done in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from mqworker.actors.broker import Broker, broker_of
from mqworker.actors.queue_roster import QueueRoster
from mqworker.actors.recovery_scanner import RecoveryScanner
from mqworker.log import get_logger
from mqworker.model.clock import SystemClock
from mqworker.model.instant import After
from mqworker.model.message import Message
from mqworker.model.names import MessageId
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.messages import open_store, some_messages
from tests.support.real_server import RealServer

MANY = 3_000

_now_ms = SystemClock().monotonic_ms


@pytest.fixture
def server() -> Iterator[RealServer]:
    """A server of the test's own, with thousands of names."""
    with RealServer() as running:
        with running.client() as client:
            client.sadd("mqw:queues", *(f"idle-{number}" for number in range(MANY)))
        yield running


@pytest.fixture
def store(server: RealServer) -> Iterator[Store]:
    """As an actor has it."""
    opened = open_store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def broker(store: Store) -> Broker:
    """The real actor."""
    return broker_of(store, WorkQueueOptions(), 1_000_000, get_logger())


@pytest.fixture
def scanner(store: Store) -> RecoveryScanner:
    """The real actor."""
    roster = QueueRoster(store, WorkQueueOptions())
    return RecoveryScanner(store, roster, interval_ms=500, log=get_logger())


def _turned(actor: Broker | RecoveryScanner, condition: Callable[[], object]) -> Callable[[], object]:
    def look() -> object:
        actor.turn(_now_ms())
        return condition()

    return look


def _settle(actor: Broker | RecoveryScanner) -> None:
    """Until it has looked at everything once and waits for its next round."""
    while True:
        actor.turn(_now_ms())
        if actor.next_turn_in_ms(_now_ms()) > 0:
            return


def test_a_delayed_message_among_thousands_of_queues_is_promoted_when_it_is_due(
    broker: Broker, store: Store
) -> None:
    queue = WorkQueue(f"idle-{MANY - 1}", store)
    queue.enqueue(*some_messages(1))  # known, and looked at before anything is delayed there
    _settle(broker)
    queue.enqueue(Message(MessageId("late"), b"", due=After(300)))
    began = time.monotonic()

    wait_until(_turned(broker, lambda: queue.counts().ready == 2), "it is ready")

    assert 0.25 < time.monotonic() - began < 1.5


def test_a_queue_that_is_made_later_is_known_within_a_round(broker: Broker, store: Store) -> None:
    _settle(broker)
    queue = WorkQueue("new", store)
    queue.enqueue(Message(MessageId("late"), b"", due=After(50)))
    began = time.monotonic()

    wait_until(_turned(broker, lambda: queue.counts().ready == 1), "it is ready")

    assert time.monotonic() - began < 2.5


def test_a_turn_of_either_is_short_however_many_queues_there_are(
    broker: Broker, scanner: RecoveryScanner
) -> None:
    for actor in (broker, scanner):
        longest_s = 0.0
        for _ in range(20):
            began = time.monotonic()
            actor.turn(_now_ms())
            longest_s = max(longest_s, time.monotonic() - began)

        assert longest_s < 1.0, actor.name


def test_a_lease_that_ended_is_found_among_thousands_of_queues(
    scanner: RecoveryScanner, store: Store
) -> None:
    _settle(scanner)
    queue = WorkQueue("idle-1234", store)
    queue.enqueue(*some_messages(1))
    queue.claim(1, lease_ms=1)

    wait_until(_turned(scanner, lambda: queue.counts().ready == 1), "it is reclaimed", 2 * MANY / 500)


def test_a_foreign_key_in_one_queue_does_no_harm_to_the_others(
    scanner: RecoveryScanner, broker: Broker, server: RealServer, store: Store
) -> None:
    queue = WorkQueue("idle-7", store)
    queue.enqueue(*some_messages(1))
    queue.claim(1, lease_ms=1)
    queue.enqueue(Message(MessageId("late"), b"", due=After(1)))
    with server.client() as client:
        for name in ("leases", "delayed", "outbox", "consumers"):
            client.set(f"mqw:{{idle-6}}:{name}", "foreign")

    wait_until(_turned(scanner, lambda: queue.counts().leased == 0), "it is reclaimed")
    wait_until(_turned(broker, lambda: queue.counts().ready == 2), "it is promoted")


def test_what_is_no_name_in_the_registry_is_passed_over(
    scanner: RecoveryScanner, broker: Broker, server: RealServer, store: Store
) -> None:
    with server.client() as client:
        client.sadd("mqw:queues", b"\xff\xfe", "with space", "{brace}", "", "x" * 300)
    queue = WorkQueue("good", store)
    queue.enqueue(*some_messages(1))
    queue.claim(1, lease_ms=1)

    _settle(broker)
    wait_until(_turned(scanner, lambda: queue.counts().ready == 1), "it is reclaimed")


def test_more_parcels_than_a_page_are_mended_page_by_page(
    scanner: RecoveryScanner, server: RealServer, store: Store
) -> None:
    queue = WorkQueue("mended", store)
    queue.enqueue(*(Message(MessageId(f"m{number}"), b"", due=After(3_600_000)) for number in range(1_000)))
    with server.client() as client:
        client.zrem("mqw:{mended}:delayed", *(f"m{number}" for number in range(0, 1_000, 2)))

    wait_until(_turned(scanner, lambda: queue.counts().ready == 500), "all were mended", 20.0)
