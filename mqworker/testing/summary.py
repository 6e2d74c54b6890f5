"""What a run of the bench did, as numbers and as the errors behind them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from mqworker.model.settlement import Ack, Bury, Crash, Failure, Park, Release, RetryAt, Settlement, Suspect


@dataclass(frozen=True, slots=True)
class Summary:
    """What became of the deliveries of one run. Shown in full when an assertion about it fails."""

    ran: int = 0
    """Deliveries that were handed to a worker. One message may count several times."""
    succeeded: int = 0
    failed: int = 0
    """The task raised; each of these was either retried or is dead."""
    retried: int = 0
    crashed: int = 0
    """The worker died over it, as `crash_next` asked for."""
    parked: int = 0
    """No task of its name is registered: set aside until one may be."""
    cancelled: int = 0
    expired: int = 0
    """The deadline passed before it could start."""
    dead: int = 0
    errors: tuple[str, ...] = ()
    """Of those that failed: 'ValueError: no such order'."""


@dataclass(slots=True)
class Tally:
    """Counts while the bench runs."""

    counts: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def add(self, name: str, more: int = 1) -> None:
        """Count one thing."""
        self.counts[name] = self.counts.get(name, 0) + more

    def add_run(self, settlement: Settlement, *, was_settled: bool) -> None:
        """Count a delivery. An at-most-once one was settled before it ran: it is neither retried nor dead."""
        self.add("ran")
        match settlement:
            case Ack():
                self.add("succeeded")
            case RetryAt(failure=failure):
                self._add_failure(failure)
                self.add("retried", int(was_settled))
            case Bury(failure=failure, reason=reason):
                if reason == "crashed":
                    self.add("crashed")
                else:
                    self._add_failure(failure)
                self.add("dead", int(was_settled))
            case Crash() | Suspect():
                self.add("crashed")
            case Park():
                self.add("parked")
            case Release():
                self.add("cancelled")
            case _:
                assert_never(settlement)

    def summary(self) -> Summary:
        """The numbers so far."""
        return Summary(**self.counts, errors=tuple(self.errors))

    def _add_failure(self, failure: Failure | None) -> None:
        self.add("failed")
        if failure is not None:
            self.errors.append(f"{failure.error}: {failure.message}")
