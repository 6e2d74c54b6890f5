"""The methods of GOMQ: how a request becomes a call at the node, and its answer a response. Pure.

Requests are parsed here and not by grpcio, which would answer a broken one as an error of the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message
from grpc import StatusCode

from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    QueueFull,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from mqworker.gateway import CONSUME, PUBLISH
from mqworker_services.gateways.gomq.generated import gomq_pb2 as contract

SERVICE = "routeguide.RouteGuide"

NodeCall = tuple[Any, ...]
"""A verb and its arguments, plain values."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the service."""

    request: Callable[[], Any]
    """Makes an empty request; Any: the generated classes have no common type that says more."""
    call: Callable[[Any, str], NodeCall]
    """The call for a request of a peer."""
    respond: Callable[[Any], Message]
    """The response for what the node answered."""
    permission: str
    """What a user must be allowed to do with the topic."""

    @staticmethod
    def topic(call: NodeCall) -> str | None:
        """The topic that a call names; to observe names none: only what was subscribed to comes."""
        return None if call[0] == "observe" else str(call[1])

    def read(self, data: bytes, peer: str) -> NodeCall:
        """The call for the bytes of a request."""
        request = self.request()
        try:
            request.ParseFromString(data)
        except (DecodeError, UnicodeDecodeError) as error:
            name = type(request).__name__
            raise InvalidArgument(
                f"request is not of type {name}; accepted is an encoded {name}, with text in UTF-8"
            ) from error
        return self.call(request, peer)


def _ok(_answer: object) -> contract.Result:
    return contract.Result(code=0)


def _record_set(records: Sequence[Sequence[Any]]) -> contract.RecordSet:
    return contract.RecordSet(
        records=[
            contract.Record(key=key, value=contract.Message(id=id_, timestamp=timestamp, payload=payload))
            for key, id_, timestamp, payload in records
        ]
    )


METHODS: Mapping[str, Method] = {
    "Publish": Method(
        contract.PublishRecord, lambda asked, _peer: ("publish", asked.key, asked.payload), _ok, PUBLISH
    ),
    "Subscribe": Method(
        contract.Subscription,
        lambda asked, peer: ("subscribe", asked.key, asked.consumerID, peer),
        _ok,
        CONSUME,
    ),
    "Unsubscribe": Method(
        contract.Subscription, lambda asked, _peer: ("unsubscribe", asked.key, asked.consumerID), _ok, CONSUME
    ),
    "Observe": Method(
        contract.Identification, lambda asked, peer: ("observe", asked.consumerID, peer), _record_set, CONSUME
    ),
}


def status_of(error: MqworkerError) -> tuple[StatusCode, str]:
    """The status and the text for an error of ours."""
    match error:
        case InvalidArgument():
            return StatusCode.INVALID_ARGUMENT, str(error)
        case StoreUnavailable():
            return StatusCode.UNAVAILABLE, _words_for_outage(error)
        case StoreFull() | QueueFull():
            return StatusCode.RESOURCE_EXHAUSTED, "the store is full: nothing was written, try again later"
        case StoreRefused():
            return StatusCode.FAILED_PRECONDITION, str(error)
        case _ if getattr(error, "kind", "") == "TopicNameTaken":
            return StatusCode.ALREADY_EXISTS, str(error)
        case _:
            return StatusCode.INTERNAL, "the gateway could not do this; its log says why"


def _words_for_outage(error: StoreUnavailable) -> str:
    if error.maybe_executed:
        return "the store did not answer: this may have happened or not (code -1)"
    return "the store is away: nothing happened, try again later (code -1)"
