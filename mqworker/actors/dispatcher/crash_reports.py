"""Crash reports: what a worker's death did to its deliveries, for the log and for the application's hooks.

The hooks run in a worker, for only workers have the application's code: the next one that takes work is told.
That is a courtesy: it is told once, and not again if that worker dies too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mqworker.actors.actor import Post
from mqworker.actors.dispatcher.workers import Crew, Hand
from mqworker.actors.mail import DeliveryBuried
from mqworker.log import Logger
from mqworker.model.delivery import Delivery
from mqworker.model.settlement import Bury, Crash, Retry, Settlement

_MOST_UNTOLD = 1_000
_EVENT_BY_KIND = {Crash: "delivery_crashed", Retry: "delivery_timed_out", Bury: "delivery_buried"}


class CrashReports:
    """Logs each delivery that a dead worker ran; keeps those that were given up until a worker is told."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._untold: list[tuple[str, DeliveryBuried]] = []

    def note(self, verdicts: Mapping[str, Sequence[Settlement]], hand: Hand, cause: str) -> None:
        """What became of what a worker had when it died."""
        for queue, settlements in verdicts.items():
            for settlement in settlements:
                event = _EVENT_BY_KIND.get(type(settlement))
                if event is not None and isinstance(settlement.delivery, Delivery):
                    self._note(event, queue, settlement, settlement.delivery, hand=hand, cause=cause)

    def posts(self, crew: Crew) -> Iterator[Post]:
        """The mail about messages that were given up, to workers that know their tasks."""
        untold, self._untold = self._untold, []
        for task, mail in untold:
            teller = next((hand for hand in crew if hand.takes_work and hand.knows(task)), None)
            if teller is not None:
                yield Post(teller.name, mail)
            else:
                self._untold.append((task, mail))

    def _note(
        self, event: str, queue: str, settlement: Settlement, delivery: Delivery, *, hand: Hand, cause: str
    ) -> None:
        facts = {"task": delivery.task, "task_id": delivery.id, "attempt": delivery.attempt, "queue": queue}
        if not isinstance(settlement, Bury):
            self._log.warning(event, **facts, worker=hand.name, cause=cause)
            return
        self._log.error(event, **facts, worker=hand.name, cause=cause, reason=settlement.reason)
        flight = hand.flights.get((queue, delivery.fence))
        if flight is not None and settlement.failure is not None and len(self._untold) < _MOST_UNTOLD:
            failure = settlement.failure
            mail = DeliveryBuried(
                queue, delivery.fence, flight.record, settlement.reason, failure.error, failure.message
            )
            self._untold.append((delivery.task, mail))
