"""The dispatcher's book of figures: what workers counted, by minute and quarter of an hour, kept in Redis.

Workers count what they ran (model/figures.py) and tell once a second. Here it is added up in memory, and
written every ten seconds, as a whole: a write that failed is made good by the next one. If this process is
killed, what was counted since the last write is lost; nothing but a statistic depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.delivery import Delivery
from mqworker.model.figures import Figures, Plain
from mqworker.model.settlement import Bury, Crash, Settlement, Suspect
from mqworker.queues.work.figures import MINUTES, RESOLUTIONS, Stretch, write_figures
from mqworker.store.script import Call

WRITE_EVERY_MS = 10_000
MOST_TOGETHER = 200
"""Tasks in one call: a script must not keep others waiting."""

MOST_STRETCHES = 60
"""While the server is away, this many of the newest are kept."""

Ask = Callable[[Call[int]], int]
_NOTHING: dict[Stretch, list[Plain]] = {(MINUTES, 0): []}


class FiguresBook:
    """Adds up figures and writes them now and then."""

    def __init__(self, namespace: str, consumer: str, ask: Ask, *, is_exported: bool = False) -> None:
        """`ask` sends a call once, or raises what is wrong with the server.

        Exported: the monitor is told all that was counted, through the supervisor.
        """
        self._is_exported = is_exported
        self.total = Figures()
        """Since this dispatcher began, for whoever exports counters."""
        self._namespace = namespace
        self._consumer = consumer
        self._ask = ask
        self._counted: dict[Stretch, Figures] = {}
        self._unwritten: dict[Stretch, set[tuple[str, str]]] = {}
        self._ahead_ms: int | None = None
        """By how much the server's clock is ahead of ours; None until it was asked."""
        self._write_at_ms = 0

    def add(self, plain: Iterable[Plain], now_ms: int) -> None:
        """Count what a worker counted."""
        counted = list(plain)
        self.total.add(counted)
        for resolution in RESOLUTIONS:
            stretch = resolution, resolution.number(now_ms + (self._ahead_ms or 0))
            self._counted.setdefault(stretch, Figures()).add(counted)
            self._unwritten.setdefault(stretch, set()).update((queue, task) for queue, task, *_ in counted)
        while len(self._unwritten) > MOST_STRETCHES:
            oldest = next(iter(self._unwritten))
            del self._unwritten[oldest], self._counted[oldest]

    def note_crashes(self, settlements_by_queue: Mapping[str, Sequence[Settlement]], now_ms: int) -> None:
        """Count the runs that ended with their worker: what only waited there goes back uncounted."""
        crashed = Figures()
        for queue, settlements in settlements_by_queue.items():
            for each in settlements:
                if isinstance(each, Crash | Suspect | Bury) and isinstance(each.delivery, Delivery):
                    crashed.note(each.delivery.task, queue, None, None, "crashed")
        if crashed:
            self.add(crashed.take(), now_ms)

    def facts(self) -> dict[str, list[Plain]]:
        """What to tell with every sign of life."""
        return {"figures": self.total.snapshot()} if self._is_exported else {}

    def turn(self, now_ms: int) -> None:
        """Write, if it is time and there is something to write."""
        if now_ms < self._write_at_ms or (not self._unwritten and self._ahead_ms is not None):
            return
        self._write_at_ms = now_ms + WRITE_EVERY_MS
        self.write(now_ms)

    def write(self, now_ms: int) -> None:
        """Write what is not written yet; when the server does not take it, the next time does."""
        try:
            self._learn_time(now_ms)
            while self._unwritten:
                self._write_some(now_ms)
        except (StoreUnavailable, StoreFull, StoreRefused):
            return  # whoever claims and settles tells of it
        self._forget_old(now_ms)

    def _learn_time(self, now_ms: int) -> None:
        """Before the first write: what was counted until then belongs to now."""
        if self._ahead_ms is not None:
            return
        self._ahead_ms = self._ask(write_figures(self._namespace, self._consumer, _NOTHING)) - now_ms
        self._counted, self._unwritten = {}, {}
        if self.total:
            counted, self.total = self.total.take(), Figures()
            self.add(counted, now_ms)

    def _write_some(self, now_ms: int) -> None:
        stretch, tasks = next(iter(self._unwritten.items()))
        some = set(sorted(tasks)[:MOST_TOGETHER])
        plain = [each for each in self._counted[stretch].snapshot() if (each[0], each[1]) in some]
        server_ms = self._ask(write_figures(self._namespace, self._consumer, {stretch: plain}))
        self._ahead_ms = server_ms - now_ms
        tasks -= some
        if not tasks:
            del self._unwritten[stretch]

    def _forget_old(self, now_ms: int) -> None:
        server_ms = now_ms + (self._ahead_ms or 0)
        self._counted = {
            (resolution, number): figures
            for (resolution, number), figures in self._counted.items()
            if number == resolution.number(server_ms)
        }
