"""Instants as callers give them: so long from now, or at a moment. The server's clock decides."""

from dataclasses import dataclass

from mqworker.model.names import LONGEST_HORIZON_MS, whole_number

LATEST_MS = (
    253_402_300_799_999  # the end of the year 9999: thirteen digits and a half, still exact in a double
)


@dataclass(frozen=True, slots=True)
class After:
    """Milliseconds from the moment the server stores it."""

    ms: int

    def __post_init__(self) -> None:
        whole_number("milliseconds from now", self.ms, least=0, most=LONGEST_HORIZON_MS)


@dataclass(frozen=True, slots=True)
class At:
    """A moment, in milliseconds since 1970 UTC. One that has passed is accepted: it means now."""

    epoch_ms: int

    def __post_init__(self) -> None:
        whole_number("epoch milliseconds", self.epoch_ms, least=0, most=LATEST_MS)


Instant = After | At


def as_argument(instant: Instant | None) -> str:
    """The instant as scripts read it: '+n' from now, 'n' since 1970, '' for none."""
    match instant:
        case None:
            return ""
        case After(ms):
            return f"+{ms}"
        case At(epoch_ms):
            return str(epoch_ms)
