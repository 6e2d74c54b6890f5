"""What both clients share: the requests, the records, and errors as Python says them. Pure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import grpc

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker_services.gateways.gomq.generated import gomq_pb2 as contract
from mqworker_services.gateways.gomq.methods import SERVICE

DEFAULT_TARGET = "127.0.0.1:10001"
DEFAULT_TIMEOUT_S = 10.0
PEER_ID = "gomq-peer-id"
"""Metadata by which clients of one unix socket are told apart."""
CHANNEL_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: the server tells peers apart by it
    ("grpc.max_receive_message_length", 8 * 1024 * 1024),
)


class GomqRefused(MqworkerError):
    """Look at `status`, the name of the gRPC status: the gateway refused this, and would do so again."""

    def __init__(self, text: str, *, status: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Record:
    """One published payload, as it was observed."""

    key: str
    id: str
    timestamp: str
    payload: bytes


def method_path(method: str) -> str:
    """How gRPC addresses a method."""
    return f"/{SERVICE}/{method}"


def metadata_of(token: str | None) -> tuple[tuple[str, str], ...]:
    """What goes along with each call of one client."""
    peer = (PEER_ID, secrets.token_hex(8))
    return (peer,) if token is None else (peer, ("authorization", f"Bearer {token}"))


def publish_request(key: str, payload: bytes | str) -> bytes:
    """The bytes of a Publish."""
    data = payload.encode() if isinstance(payload, str) else payload
    return contract.PublishRecord(key=key, payload=data).SerializeToString()


def subscription(key: str, consumer: str) -> bytes:
    """The bytes of a Subscribe or Unsubscribe."""
    return contract.Subscription(key=key, consumerID=consumer).SerializeToString()


def observe_request(consumer: str) -> bytes:
    """The bytes of an Observe."""
    return contract.Identification(consumerID=consumer).SerializeToString()


def records_of(response: bytes) -> list[Record]:
    """The records of an answer to Observe."""
    found = contract.RecordSet.FromString(response).records
    return [Record(each.key, each.value.id, each.value.timestamp, each.value.payload) for each in found]


def error_of(error: grpc.RpcError) -> MqworkerError:
    """One of our errors for what gRPC raised."""
    status, text = error.code(), error.details() or ""
    match status:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return InvalidArgument(text)
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return StoreUnavailable(text or "the gateway did not answer in time")
        case _:
            return GomqRefused(text, status=status.name)
