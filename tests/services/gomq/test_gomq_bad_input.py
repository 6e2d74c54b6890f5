"""Bad input over real connections: a status that says what is accepted, and everybody else is served on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import grpc
import pytest
import redis

from mqworker_services.gateways.gomq.generated import gomq_pb2 as contract
from tests.services.gomq.conftest import Connect
from tests.services.gomq.gomq_node import Foreign, GomqNode
from tests.support.deadline import wait_until
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer

LARGEST = 1_048_576
CODES = grpc.StatusCode


@pytest.fixture(autouse=True)
def _gateway_survives(node: GomqNode, connect: Connect, raw: redis.Redis) -> Iterator[None]:
    """After each test the same process serves the next client."""
    pid = node.child("gateway:gomq")["pid"]
    yield
    connect().publish("AFTER", b"x")
    assert raw.llen("QUEUE_AFTER") == 1
    assert node.child("gateway:gomq")["pid"] == pid


def refusal(client: Foreign, method: str, request: bytes) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        client.send(method, request)
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize(
    ("method", "request_bytes", "words"),
    [
        ("Publish", contract.PublishRecord(payload=b"x"), "key is ''; accepted"),
        ("Publish", contract.PublishRecord(key="k" * 513), "accepted is a text of 1 to 512 bytes"),
        ("Publish", contract.PublishRecord(key="k", payload=b"x" * (LARGEST + 1)), "up to 1,048,576"),
        ("Subscribe", contract.Subscription(consumerID="c"), "key is ''; accepted"),
        ("Subscribe", contract.Subscription(key="k"), "consumer is ''; accepted"),
        ("Unsubscribe", contract.Subscription(), "key is ''; accepted"),
        ("Observe", contract.Identification(), "consumer is ''; accepted"),
        ("Publish", b"\x0a\x02\xff\xfe", "request is not of type PublishRecord"),
        ("Observe", b"\xff" * 50, "request is not of type Identification"),
    ],
    ids=str,
)
def test_what_is_not_accepted_is_named(
    connect: Connect,
    raw: redis.Redis,
    method: str,
    request_bytes: bytes | contract.PublishRecord | contract.Subscription | contract.Identification,
    words: str,
) -> None:
    data = request_bytes if isinstance(request_bytes, bytes) else request_bytes.SerializeToString()

    status, text = refusal(connect(), method, data)

    assert status is CODES.INVALID_ARGUMENT
    assert words in text
    assert [key for key in raw.scan_iter() if not key.startswith(b"mqw:")] == []


def test_unknown_fields_are_ignored_and_unknown_methods_are_not(connect: Connect) -> None:
    client = connect()
    known = contract.PublishRecord(key="k", payload=b"x").SerializeToString()

    assert client.send("Publish", known + b"\x98\x06\x01") == contract.Result(code=0).SerializeToString()
    assert refusal(client, "Purge", known)[0] is CODES.UNIMPLEMENTED


def test_more_bytes_than_accepted_are_refused_before_they_are_read(connect: Connect) -> None:
    assert refusal(connect(), "Publish", bytes(5 * LARGEST))[0] is CODES.RESOURCE_EXHAUSTED


def test_too_much_metadata_is_refused(node: GomqNode) -> None:
    client = Foreign(node.target, [(f"name-{number}", "v" * 20) for number in range(10_000)])

    status, _ = refusal(client, "Observe", contract.Identification(consumerID="c").SerializeToString())

    assert status in {CODES.RESOURCE_EXHAUSTED, CODES.UNAVAILABLE, CODES.INTERNAL}
    client.close()


def test_many_calls_at_once_on_one_connection_wait_for_their_turn(connect: Connect, raw: redis.Redis) -> None:
    client = connect()
    request = contract.PublishRecord(key="k", payload=b"x").SerializeToString()

    under_way = [client._method("Publish").future(request, 60) for _ in range(3_000)]

    assert {each.code() for each in under_way} == {CODES.OK}
    assert raw.llen("QUEUE_k") == 3_000


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x7f\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(64),
        bytes(4096),
    ],
    ids=["http1", "tls", "ssh", "huge-frame", "zeros"],
)
def test_bytes_of_another_protocol_end_their_own_connection(node: GomqNode, noise: bytes) -> None:
    host, _, port = node.target.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as stranger:
        stranger.sendall(noise)
        with suppress(ConnectionError):
            while stranger.recv(4096):
                pass  # settings and a goodbye; then the end


def test_streams_that_are_reset_at_once_end_their_own_connection(node: GomqNode) -> None:
    """Thousands of requests, each taken back in the same breath."""
    headers = bytes.fromhex("82 84 86 41 01 78")  # :method :path :scheme :authority, as HPACK
    flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    for number in range(1, 20_001, 2):
        stream = number.to_bytes(4, "big")
        flood += len(headers).to_bytes(3, "big") + b"\x01\x05" + stream + headers
        flood += b"\x00\x00\x04\x03\x00" + stream + b"\x00\x00\x00\x08"
    host, _, port = node.target.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as stranger, suppress(OSError):
        stranger.sendall(flood)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(65_536):
            pass


def test_a_flood_of_pings_is_told_to_calm_down(node: GomqNode) -> None:
    go_away, too_many = 7, b"too_many_pings"
    flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    flood += (b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + bytes(8)) * 5_000
    heard = b""
    host, _, port = node.target.partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as stranger, suppress(OSError):
        stranger.sendall(flood)
        while data := stranger.recv(65_536):
            heard += data

    assert go_away in {heard[place + 3] for place in frame_places(heard)}
    assert too_many in heard


def frame_places(data: bytes) -> Iterator[int]:
    """Where the frames of HTTP/2 begin."""
    place = 0
    while place + 9 <= len(data):
        yield place
        place += 9 + int.from_bytes(data[place : place + 3], "big")


def test_a_foreign_type_is_refused_by_name(connect: Connect, raw: redis.Redis) -> None:
    raw.set("QUEUE_FOO", "not ours")

    status, text = refusal(
        connect(), "Publish", contract.PublishRecord(key="FOO", payload=b"x").SerializeToString()
    )

    assert status is CODES.FAILED_PRECONDITION
    assert "QUEUE_FOO is a string and should be a list" in text


def test_a_store_that_is_away_is_unavailable_with_the_code_of_the_document() -> None:
    request = contract.PublishRecord(key="FOO", payload=b"x").SerializeToString()
    with RealServer() as server, GomqNode(server.url) as node:
        client = Foreign(node.target)
        client.send("Publish", request)
        server.kill()

        with pytest.raises(grpc.RpcError) as caught:
            client.send("Publish", request)
        server.start()
        wait_until(lambda: _is_published(client, request), "the gateway serves again", 30)
        client.close()

    assert caught.value.code() is CODES.UNAVAILABLE
    assert "code -1" in caught.value.details()
    assert ("gomq-code", "-1") in [tuple(pair) for pair in caught.value.trailing_metadata()]


def _is_published(client: Foreign, request: bytes) -> bool:
    with suppress(grpc.RpcError):
        return contract.Result.FromString(client.send("Publish", request)).code == 0
    return False


def test_a_cluster_is_refused_in_one_sentence() -> None:
    request = contract.PublishRecord(key="FOO", payload=b"x").SerializeToString()
    with RealCluster() as cluster, GomqNode(cluster.url) as node:
        client = Foreign(node.target)
        wait_until(
            lambda: "topics need a single server" in refusal(client, "Publish", request)[1],
            "the refusal is known",
            30,
        )
        status, _ = refusal(client, "Publish", request)
        client.close()

    assert status is CODES.FAILED_PRECONDITION
