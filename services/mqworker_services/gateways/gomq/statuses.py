"""Errors as gRPC tells them: a status and a sentence that carries no internals. Pure."""

from __future__ import annotations

from grpc import StatusCode

from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    QueueFull,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)


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
