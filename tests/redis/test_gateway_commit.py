"""The commits of broker and dispatcher on a real server: mail in, one round trip, mail out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mqworker.actors.gateway.client import CallBatches
from mqworker.actors.gateway.commit import GatewayCommits
from mqworker.actors.gateway.queues import GatewayQueues
from mqworker.actors.gateway.verbs.table import broker_verbs, dispatcher_verbs
from mqworker.actors.gateway.verbs.verb import Verb
from mqworker.actors.gateway.watch import GatewayWatch
from mqworker.actors.mail import GatewayReplies, PeerLost, QueuesWoken, WatchQueues
from mqworker.queues.work.calls import WorkQueueOptions
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.link.address import parse_address
from mqworker.store.link.connection import open_connection
from mqworker.store.procedure import Procedure
from mqworker.store.store import Store
from tests.support.deadline import wait_until
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

GATEWAY = "gateway:toy"


class Party:
    """A batches of a gateway, and the commits it leads to; each may be replaced, as after a kill."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.batches = CallBatches()
        self.commits = self.new_commits()
        self.replies: list[Any] = []
        self.woken: list[str] = []
        self.now_ms = 1_000

    def new_commits(self) -> GatewayCommits:
        connection = open_connection(
            parse_address(self.url), connect_timeout_s=2.0, read_timeout_s=1.0, client_name="mqw-test"
        )
        self.store = Store(connection, retry_for_ms=0)
        queues = GatewayQueues(WorkQueueOptions())
        verbs = {**broker_verbs(queues), **dispatcher_verbs(queues), "choke": Verb(_choke)}
        return GatewayCommits(self.store, verbs, GatewayWatch(self.store, queues.channel))

    def call(self, *calls: list[Any]) -> list[Any]:
        """Make calls in one turn of the gateway's loop and wait for all answers."""
        before = len(self.replies)
        self.submit(*calls)
        self.exchange()
        wait_until(lambda: self.turn() or len(self.replies) == before + len(calls), "all were answered")
        return [reply for _, reply in sorted(self.replies[before:])]

    def submit(self, *calls: list[Any]) -> None:
        for place, call in enumerate(calls):
            self.batches.submit(call, lambda reply, place=place: self.replies.append((place, reply)), 64, 0)

    def exchange(self) -> None:
        for mail in self.batches.mails():
            self.commits.handle(mail, GATEWAY, self.now_ms)

    def turn(self) -> None:
        for post in self.commits.turn(self.now_ms):
            assert post.to == GATEWAY
            if isinstance(post.mail, GatewayReplies):
                self.batches.take(post.mail)
            if isinstance(post.mail, QueuesWoken):
                self.woken += post.mail.queues
        self.exchange()


def _choke() -> Procedure[None]:
    yield from ()
    raise KeyError("a verb with a fault in it")


@pytest.fixture
def party(server: RealServer) -> Iterator[Party]:
    party = Party(server.url)
    yield party
    party.store.close()


def test_calls_of_many_clients_are_one_script_for_each_queue(party: Party, server: RealServer) -> None:
    party.call(["push", "q", [b"first"]], ["pop", "q", 1])  # scripts and registry are known from here on
    with server.client() as client:
        before = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        replies = party.call(*[["push", "q", [b"a", b"b"]] for _ in range(300)])
        scripts = client.info("commandstats")["cmdstat_evalsha"]["calls"] - before

    ids = [item for is_fine, some in replies for item in some]
    assert all(is_fine for is_fine, _ in replies)
    assert len(set(ids)) == 600
    assert ids == sorted(ids, key=lambda item: [int(part) for part in item.split("-")])
    assert scripts == 1


def test_pops_and_acks_are_dealt_out_in_the_order_of_the_calls(party: Party) -> None:
    ((_, ids),) = party.call(["push", "q", [b"a", b"b", b"c"]])

    popped = party.call(["pop", "q", 1], ["pop", "q", 5], ["pop", "q", 1])
    acked = party.call(["ack", "q", [ids[0], "9-9"]], ["ack", "q", [ids[0], ids[2]]])

    assert popped == [[True, [(ids[0], b"a")]], [True, [(ids[1], b"b"), (ids[2], b"c")]], [True, []]]
    assert acked == [[True, [ids[0]]], [True, [ids[2]]]]


def test_one_bad_call_never_fails_its_neighbours(party: Party, server: RealServer) -> None:
    with server.client() as client:
        client.set("taken", "by somebody else")

    replies = party.call(
        ["push", "q", [b"fine"]],
        ["push", "taken", [b"x"]],
        ["push", "q", []],
        ["push", "no such\nname", [b"x"]],
        ["choke"],
        ["what?"],
        ["recover", "q"],
        ["inspect", "nobody", 0, 1],
        ["push", "q", [b"fine too"]],
    )

    kinds = [reply[1] if not reply[0] else True for reply in replies]
    assert kinds == [
        True,
        "wrong_type",
        "invalid",
        "invalid",
        "failed",
        "invalid",
        "invalid",
        "no_queue",
        True,
    ]
    assert len(WorkQueue("q", party.store).inspect(0, 10)) == 2


def test_a_full_queue_refuses_only_what_does_not_fit(party: Party) -> None:
    party.call(["push", "q", [b"0"]])
    WorkQueue("q", party.store).limit(3)

    replies = party.call(*[["push", "q", [b"%d" % number]] for number in range(5)])

    assert [reply[0] for reply in replies] == [True, True, False, False, False]
    assert replies[-1][1] == "queue_full"


@pytest.mark.parametrize("is_lost_before_the_commit", [True, False])
def test_a_turn_repeated_at_a_new_broker_happens_once(party: Party, is_lost_before_the_commit: bool) -> None:  # noqa: FBT001
    party.call(["push", "q", [b"0"]])  # so that the first commits knows the queue, and the second does not
    party.replies.clear()
    party.submit(["push", "q", [b"a"]], ["push", "q", [b"b", b"c"]], ["push", "other", [b"d"]])
    for mail in party.batches.mails():
        if not is_lost_before_the_commit:
            party.commits.handle(mail, GATEWAY, party.now_ms)
            while not party.commits.turn(party.now_ms):  # its answer goes down with it
                pass

    party.commits = party.new_commits()
    for mail in party.batches.unanswered():
        party.commits.handle(mail, GATEWAY, party.now_ms)
    wait_until(lambda: party.turn() or len(party.replies) == 3, "the new commits answered")

    assert [reply[0] for _, reply in party.replies] == [True, True, True]
    assert [element for _, element in WorkQueue("q", party.store).inspect(0, 9)] == [b"0", b"a", b"b", b"c"]
    assert len(WorkQueue("other", party.store).inspect(0, 9)) == 1


def test_a_pop_repeated_at_a_new_broker_gives_the_same_elements(party: Party) -> None:
    party.call(["push", "q", [b"a", b"b", b"c"]])
    party.replies.clear()
    party.submit(["pop", "q", 2])
    (mail,) = party.batches.mails()
    party.commits.handle(mail, GATEWAY, party.now_ms)
    party.commits.turn(party.now_ms)

    party.commits = party.new_commits()
    party.commits.handle(mail, GATEWAY, party.now_ms)
    wait_until(lambda: party.turn() or party.replies, "the new commits answered")

    ((_, (_, popped)),) = party.replies
    assert [element for _, element in popped] == [b"a", b"b"]


def test_without_a_server_callers_hear_so_in_time_and_nothing_is_stored() -> None:
    with RealServer() as server:
        party = Party(server.url)
        party.call(["push", "q", [b"before"]])
        party.replies.clear()
        server.pause()
        party.submit(["push", "q", [b"meanwhile"]])
        party.exchange()
        party.turn()
        party.now_ms += 5_000
        party.turn()
        server.resume()

        ((_, reply),) = party.replies
        assert reply[:2] == [False, "unknown"]
        assert party.call(["inspect", "q", 0, 9])[0][0]
        party.store.close()


def test_a_server_that_forgot_its_scripts_is_not_noticed(party: Party, server: RealServer) -> None:
    party.call(["push", "q", [b"a"]])
    with server.client() as client:
        client.script_flush()

    assert [reply[0] for reply in party.call(["push", "q", [b"b"]], ["inspect", "q", 0, 9])] == [True, True]


def test_who_waits_is_woken_by_a_push_of_any_client(party: Party) -> None:
    party.commits.handle(WatchQueues(["q"]), GATEWAY, party.now_ms)
    party.turn()
    assert party.woken == ["q"]  # at once: something may have come before anybody listened

    WorkQueue("q", party.store).push(b"a")

    wait_until(lambda: party.turn() or len(party.woken) == 2, "the push was heard")
    party.commits.handle(PeerLost(GATEWAY), "supervisor", party.now_ms)


def test_what_was_popped_for_somebody_gone_is_put_back_in_front(party: Party) -> None:
    ((_, ids),) = party.call(["push", "q", [b"a", b"b", b"c"]])
    party.call(["pop", "q", 2])
    party.call(["ack", "q", [ids[1]]])

    assert party.call(["put_back", "q", [ids[0], ids[1], "9-9"]]) == [[True, 1]]
    assert party.call(["put_back", "q", [ids[0]]]) == [[True, 0]]
    assert [element for _, element in WorkQueue("q", party.store).inspect(0, 9)] == [b"a", b"c"]
    assert WorkQueue("q", party.store).inspect_pending(0, 9) == []


def test_a_cluster_is_served() -> None:
    with RealCluster() as cluster:
        party = Party(cluster.url)

        replies = party.call(*[["push", f"q{number}", [b"x"]] for number in range(20)])
        popped = party.call(*[["pop", f"q{number}", 1] for number in range(20)])

        assert all(reply[0] for reply in replies)
        assert [len(reply[1]) for reply in popped] == [1] * 20
        party.store.close()
