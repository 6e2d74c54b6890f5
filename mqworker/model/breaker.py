"""A circuit breaker by key: after some failures nothing of that key starts for a while."""

from __future__ import annotations

from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number
from mqworker.model.rate import LONGEST_PERIOD_MS, argument_names

MOST_FAILURES = 1_000


@dataclass(frozen=True, slots=True)
class Breaker:
    """After `failures` failed calls within `within` seconds the key is closed for `close_for` seconds.

    `key` is a template of the task's arguments, or None for the task as a whole. After that time one call
    may try: if it succeeds the key is open again, if it fails it is closed once more. A call fails when it
    raises or takes its worker with it; one that is cancelled, or released by a stopping node, says nothing.
    """

    key: str | None = None
    failures: int = 5
    within: float = 60.0
    close_for: float = 30.0

    def __post_init__(self) -> None:
        if self.key is not None:
            argument_names(self.key)
        whole_number("failures", self.failures, least=1, most=MOST_FAILURES)
        for name, value in (("within", self.within), ("close_for", self.close_for)):
            _milliseconds(name, value)

    @property
    def within_ms(self) -> int:
        """In what time so many must fail."""
        return _milliseconds("within", self.within)

    @property
    def closed_for_ms(self) -> int:
        """For how long the key is closed then."""
        return _milliseconds("close_for", self.close_for)


def _milliseconds(name: str, seconds: object) -> int:
    # A comparison with NaN is False, so it is refused like any number outside.
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if isinstance(seconds, int | float) and is_number and 1 <= seconds * 1000 <= LONGEST_PERIOD_MS:
        return round(seconds * 1000)
    raise InvalidArgument(f"{name} is {shown(seconds)}; accepted are seconds from 0.001 to a year")
