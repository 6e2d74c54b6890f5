"""GOMQ without sockets: names of peers, who may call how often, requests, statuses, settings."""

from __future__ import annotations

import asyncio
from typing import cast

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqworker.errors import (
    ConfigurationError,
    InvalidArgument,
    MqworkerError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from mqworker.gateway import GatewayCallFailed, NodeClient, OnReply
from mqworker.settings import load_settings
from mqworker_services.gateways.gomq.call_batcher import UNDELAYED_AFTER_A_LONE_CALL, CallBatcher
from mqworker_services.gateways.gomq.generated import gomq_pb2 as contract
from mqworker_services.gateways.gomq.methods import METHODS, status_of
from mqworker_services.gateways.gomq.peers import PeerLimits, peer_name

# Peers.


@pytest.mark.parametrize(
    ("told", "own_name", "name"),
    [
        ("ipv4:127.0.0.1:46354", None, "127.0.0.1:46354"),
        ("ipv6:%5B::1%5D:49806", None, "[::1]:49806"),
        ("ipv6:[::1]:49806", None, "[::1]:49806"),
        ("ipv6:%5Bfe80::1%25eth_0%5D:7", None, "[fe80::1%eth-0]:7"),
        ("unix:", "a1b2", "unix:a1b2"),
        ("unix:/run/gomq.sock", "a1b2", "unix:a1b2"),
        ("unix:", None, "unix:anonymous"),
        ("unix:", "no_good", "unix:anonymous"),
        ("unix:", "x" * 65, "unix:anonymous"),
        ("ipv4:10.0.0.7:5", "a1b2", "10.0.0.7:5"),
        ("", None, "unknown"),
    ],
)
def test_a_peer_is_called_as_in_the_document(told: str, own_name: str | None, name: str) -> None:
    assert peer_name(told, own_name) == name


def test_no_more_peers_than_allowed_are_served_until_one_is_silent() -> None:
    limits = PeerLimits(2, 0)

    verdicts = [
        limits.refusal("a", 0),
        limits.refusal("b", 30),
        limits.refusal("c", 59),
        limits.refusal("a", 59),
    ]
    later = limits.refusal("c", 95)

    assert verdicts[:2] == [None, None]
    assert verdicts[2] is not None
    assert "2 peers" in verdicts[2]
    assert (verdicts[3], later) == (None, None)
    assert len(limits) == 2


def test_a_peer_may_call_so_often_and_no_oftener() -> None:
    limits = PeerLimits(10, 5)

    at_once = [limits.refusal("a", 10.0) is None for _ in range(7)]
    a_little_later = [limits.refusal("a", 10.4) is None for _ in range(4)]

    assert at_once == [True] * 5 + [False] * 2
    assert a_little_later == [True, True, False, False]
    assert limits.refusal("b", 10.4) is None


# Requests and answers.


def test_requests_become_calls_of_the_node() -> None:
    def call(
        method: str, request: contract.PublishRecord | contract.Subscription | contract.Identification
    ) -> object:
        return METHODS[method].read(request.SerializeToString(), "p:1")

    assert call("Publish", contract.PublishRecord(key="k", payload=b"\xff")) == ("publish", "k", b"\xff")
    assert call("Subscribe", contract.Subscription(key="k", consumerID="c")) == ("subscribe", "k", "c", "p:1")
    assert call("Unsubscribe", contract.Subscription(key="k", consumerID="c")) == ("unsubscribe", "k", "c")
    assert call("Observe", contract.Identification(consumerID="c")) == ("observe", "c", "p:1")


def test_answers_become_responses() -> None:
    observed = METHODS["Observe"].respond([["k", "id", "time", b"\x00"], ["k", "", "", b""]])

    assert METHODS["Publish"].respond("an id") == contract.Result(code=0)
    assert observed == contract.RecordSet(
        records=[
            contract.Record(key="k", value=contract.Message(id="id", timestamp="time", payload=b"\x00")),
            contract.Record(key="k", value=contract.Message()),
        ]
    )


@settings(max_examples=2_000)
@given(st.binary(max_size=200), st.sampled_from(sorted(METHODS)))
def test_any_bytes_are_a_call_or_refused_by_name(data: bytes, method: str) -> None:
    try:
        call = METHODS[method].read(data, "p:1")
    except InvalidArgument as error:
        assert "accepted" in str(error)  # noqa: PT017 - either end is right
    else:
        assert call[0] == method.lower()
        assert all(isinstance(argument, str | bytes) for argument in call)


@pytest.mark.parametrize("data", [b"\x0a\x02\xff\xfe", b"\x0a\x05a", b"\xff" * 20])
def test_a_broken_request_is_the_clients_error(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="request is not of type PublishRecord; accepted"):
        METHODS["Publish"].read(data, "p:1")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidArgument("key is ''"), grpc.StatusCode.INVALID_ARGUMENT),
        (StoreUnavailable("gone"), grpc.StatusCode.UNAVAILABLE),
        (StoreUnavailable("gone", maybe_executed=False), grpc.StatusCode.UNAVAILABLE),
        (StoreFull("OOM"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (StoreRefused("WRONGTYPE"), grpc.StatusCode.FAILED_PRECONDITION),
        (GatewayCallFailed("taken", kind="TopicNameTaken"), grpc.StatusCode.ALREADY_EXISTS),
        (GatewayCallFailed("a secret place", kind="failed"), grpc.StatusCode.INTERNAL),
        (MqworkerError("a secret place"), grpc.StatusCode.INTERNAL),
    ],
)
def test_each_error_has_its_status(error: MqworkerError, status: grpc.StatusCode) -> None:
    told, text = status_of(error)

    assert told is status
    assert "secret" not in text
    assert ("-1" in text) == isinstance(error, StoreUnavailable)


# Calls that travel together.


class FakeNode:
    """Notes in which turn of the event loop each call came, and answers it."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self._is_open = False

    def submit_call(self, _call: list[object], on_reply: OnReply, _size: int) -> None:
        if not self._is_open:
            self._is_open = True
            self.batches.append(0)
            asyncio.get_running_loop().call_soon(self._close)
        self.batches[-1] += 1
        on_reply([True, "an id"])

    def _close(self) -> None:
        self._is_open = False


def test_calls_that_come_close_together_travel_together() -> None:
    async def scenario() -> list[int]:
        node = FakeNode()
        batcher = CallBatcher(cast(NodeClient, node))

        async def publish(turns: int) -> object:
            for _ in range(turns):  # grpcio hands over one call in each turn
                await asyncio.sleep(0)
            return await batcher.call("publish", "k", b"x")

        assert await asyncio.gather(*(publish(turns) for turns in range(20))) == ["an id"] * 20
        return node.batches

    batches = asyncio.run(scenario())

    assert sum(batches) == 20
    assert len(batches) < 10


def test_who_calls_alone_is_held_up_once_in_fifty() -> None:
    async def scenario() -> list[bool]:
        batcher = CallBatcher(cast(NodeClient, FakeNode()))
        were_held_up = []
        for _ in range(UNDELAYED_AFTER_A_LONE_CALL + 2):
            call = asyncio.ensure_future(batcher.call("publish", "k", b"x"))
            await asyncio.sleep(0)
            were_held_up.append(not call.done())
            await call
        return were_held_up

    assert asyncio.run(scenario()) == [True, *[False] * UNDELAYED_AFTER_A_LONE_CALL, True]


def test_an_error_of_the_node_is_raised_to_its_caller() -> None:
    class RefusingNode(FakeNode):
        def submit_call(self, _call: list[object], on_reply: OnReply, _size: int) -> None:
            on_reply([False, "invalid", "key is ''"])

    async def scenario() -> None:
        await CallBatcher(cast(NodeClient, RefusingNode())).call("publish", "", b"x")

    with pytest.raises(InvalidArgument, match="key is ''"):
        asyncio.run(scenario())


# Settings.


@pytest.mark.parametrize(
    ("name", "value", "accepted"),
    [
        ("gomq_prefix", "a b", "up to 64 of A-Z"),
        ("gomq_orphans", "keep", "one of drop, requeue"),
        ("gomq_silent_s", 0, "seconds"),
        ("gomq_queue_ttl_s", -1, "seconds"),
        ("gomq_dispatch_grace_s", "soon", "seconds"),
    ],
)
def test_settings_that_do_not_fit_are_refused(name: str, value: object, accepted: str) -> None:
    with pytest.raises(ConfigurationError, match=accepted):
        load_settings({name: value}, environ={})
