"""Errors on their way to a gateway: a kind and a text on the pipe, one of our errors at both ends. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from mqworker.errors import (
    InvalidArgument,
    MqworkerError,
    NotSupported,
    QueueFull,
    StaleCall,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnknownQueue,
)

UNAVAILABLE = "unavailable"
"""Nothing happened; try again later."""
UNKNOWN = "unknown"
"""It may have happened, and nobody can know."""
APART = "apart"
"""Together with others it was refused, and nothing happened; between batches and node only."""
FAILED = "failed"
WRONG_TYPE = "wrong_type"

_CODE_OF_WRONG_TYPE = "WRONGTYPE"
_KIND_BY_CLASS: Mapping[type[MqworkerError], str] = {
    InvalidArgument: "invalid",
    NotSupported: "not_supported",
    QueueFull: "queue_full",
    StoreFull: "store_full",
    StoreRefused: "refused",
    UnknownQueue: "no_queue",
}
_ERROR_BY_KIND: Mapping[str, Callable[[str], MqworkerError]] = {
    **{kind: error for error, kind in _KIND_BY_CLASS.items()},
    UNAVAILABLE: partial(StoreUnavailable, maybe_executed=False),
    UNKNOWN: partial(StoreUnavailable, maybe_executed=True),
    WRONG_TYPE: partial(StoreRefused, code=_CODE_OF_WRONG_TYPE),
}


def kind_of(error: MqworkerError) -> str:
    """The word for an error; errors of one queue model's own travel by the name of their class."""
    match error:
        case StoreUnavailable():
            return UNKNOWN if error.maybe_executed else UNAVAILABLE
        case StaleCall():  # somebody else carried out this turn, and got the answer
            return UNKNOWN
        case StoreRefused(code=code) if code == _CODE_OF_WRONG_TYPE:
            return WRONG_TYPE
        case _:
            return _KIND_BY_CLASS.get(type(error), type(error).__name__)


class GatewayCallFailed(MqworkerError):
    """Look at `kind`: the node answered with an error that has no class of its own here."""

    def __init__(self, text: str, *, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


def error_of(kind: str, text: str) -> MqworkerError:
    """The error for a kind and its text."""
    known = _ERROR_BY_KIND.get(kind)
    return GatewayCallFailed(text, kind=kind) if known is None else known(text)
