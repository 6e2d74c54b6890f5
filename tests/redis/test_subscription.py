"""Wake-ups over sharded pub/sub."""

from __future__ import annotations

import os
import select
from collections.abc import Callable

import pytest

from mqworker.errors import InvalidArgument, StoreUnavailable
from mqworker.store.link.connection import Connection
from mqworker.store.link.subscription import ADDED, RESUBSCRIBED, Subscription
from tests.support.real_server import RealServer


def drained(subscription: Subscription) -> list[tuple[str, bytes]]:
    found = []
    while (wake_up := subscription.get(0)) is not None:
        found.append(wake_up)
    return found


def test_published_bodies_arrive_with_their_channel(connection: Connection) -> None:
    subscription = connection.subscribe(["a", "b"])

    connection.execute([("SPUBLISH", "b", "1"), ("SPUBLISH", "a", "2"), ("SPUBLISH", "c", "3")], "b")

    assert [subscription.get(5), subscription.get(5)] == [("b", b"1"), ("a", b"2")]
    assert subscription.get(0) is None
    subscription.close()


def test_channels_can_be_added_and_nothing_of_the_others_is_missed(connection: Connection) -> None:
    subscription = connection.subscribe(["a"])
    connection.execute([("SPUBLISH", "a", "before")], "a")

    subscription.add([f"more-{number}" for number in range(1_000)])
    confirmed = {subscription.get(5) for _ in range(1_001)}
    connection.execute([("SPUBLISH", "more-999", "1"), ("SPUBLISH", "a", "2")], "a")

    assert confirmed == {("a", b"before"), *((f"more-{number}", ADDED) for number in range(1_000))}
    assert [subscription.get(5), subscription.get(5)] == [("more-999", b"1"), ("a", b"2")]
    subscription.close()


def test_added_channels_are_listened_to_again_after_a_killed_link(
    server: RealServer, connection: Connection
) -> None:
    subscription = connection.subscribe(["a"])
    subscription.add(["b"])
    assert subscription.get(5) == ("b", ADDED)
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

    assert subscription.get(5) == RESUBSCRIBED
    connection.execute([("SPUBLISH", "b", "again")], "b")

    assert subscription.get(5) == ("b", b"again")
    subscription.close()


def test_descriptor_is_readable_when_something_arrived_and_only_then(connection: Connection) -> None:
    subscription = connection.subscribe(["a"])
    assert select.select([subscription], [], [], 0)[0] == []

    connection.execute([("SPUBLISH", "a", str(number)) for number in range(100)], "a")
    assert select.select([subscription], [], [], 5)[0] == [subscription]
    while len(found := drained(subscription)) < 100:
        assert select.select([subscription], [], [], 5)[0]
        found += drained(subscription)

    assert select.select([subscription], [], [], 0)[0] == []
    subscription.close()


def test_killed_link_is_opened_again_and_the_loss_is_reported(
    server: RealServer, connection: Connection
) -> None:
    subscription = connection.subscribe(["a"])
    descriptor = subscription.fileno()
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")

    assert subscription.get(5) == RESUBSCRIBED
    connection.execute([("SPUBLISH", "a", "again")], "a")

    assert subscription.get(5) == ("a", b"again")
    assert subscription.fileno() == descriptor
    subscription.close()


def test_subscription_to_nothing_is_refused(connection: Connection) -> None:
    with pytest.raises(InvalidArgument, match="channels"):
        connection.subscribe([])


def test_absent_server_raises_until_it_is_back(connect: Callable[[str], Connection]) -> None:
    with RealServer() as server:
        connection = connect(server.url)
        subscription = connection.subscribe(["a"])
        server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                subscription.get(5)

        server.start()

        assert subscription.get(5) == RESUBSCRIBED
        connection.execute([("SPUBLISH", "a", "again")], "a")
        assert subscription.get(5) == ("a", b"again")
        subscription.close()


def test_forked_child_subscribes_on_its_own_and_the_parent_keeps_its_link(connection: Connection) -> None:
    subscription = connection.subscribe(["a"])
    if os.fork() == 0:
        is_told = subscription.get(5) == RESUBSCRIBED
        subscription.close()
        os._exit(0 if is_told else 1)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0

    connection.execute([("SPUBLISH", "a", "1")], "a")

    assert subscription.get(5) == ("a", b"1")
    subscription.close()
