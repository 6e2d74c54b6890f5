"""The picture: everything that the console shows at a glance, read at once, by one reader for all viewers."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from mqworker.errors import StoreRefused
from mqworker.model.event import IDS, SUCCEEDED, decode_block
from mqworker.model.names import QueueName
from mqworker.model.throughput import Sample
from mqworker.model.verdict import Verdict, judge
from mqworker.model.view import QueueView, SystemView
from mqworker.operate.figures import Statistics, read_statistics
from mqworker.operate.held import HeldJob, read_held
from mqworker.operate.running import RunningJob, read_running
from mqworker.operate.system import System
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.throughput import KEPT, decode_sample
from mqworker.store.command import Command
from mqworker.store.link.cluster_connection import ClusterConnection
from mqworker.store.script import RawReply

__all__ = ["Painter", "Picture", "QueueView", "Series", "SystemView", "rates_of", "summed"]

SECONDS = 60
_SHORT_MS = 2_500
_BLOCKS = 12
"""Blocks of events looked at in each queue and second: a sample where more happens."""
_FIRST_BLOCKS = 300
"""After a while without viewers, so that there is a past to see at once."""
_WATCHED_MS = 5_000
_MOST_RUNS = 400
_NO_RUNS = {b"n", b"v", IDS.encode()}


@dataclass(frozen=True, slots=True)
class Series:
    """One value a second; None where nothing is known."""

    at_s: tuple[int, ...] = ()
    in_per_s: tuple[float | None, ...] = ()
    out_per_s: tuple[float | None, ...] = ()
    wait_ms: tuple[float | None, ...] = ()
    """95 % of the runs of that second had waited no longer, first attempts only."""
    run_ms: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """The system at one moment."""

    view: SystemView
    verdict: Verdict
    held: tuple[HeldJob, ...]
    series: Series
    series_by_queue: dict[str, Series] = field(default_factory=dict)
    running: dict[tuple[str, str], list[RunningJob]] = field(default_factory=dict)
    """By node and worker."""
    statistics: Statistics | None = None
    """Figures by task over the last quarter of an hour; None where they cannot be read."""


STATISTICS_MS = 15 * 60_000
_STATISTICS_EVERY_MS = 10_000


class Painter:
    """Reads one picture after another; keeps of each run only when it was, how long it waited and ran."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._painted_at_ms = 0
        self._seen: dict[str, bytes] = {}
        self._runs: dict[str, dict[int, list[tuple[float, float]]]] = {}
        self._statistics: Statistics | None = None
        self._statistics_at_ms = 0

    def paint(self) -> Picture:
        """Read everything: six round trips on a single server, however many look at it."""
        namespace = self._system.settings.namespace
        view = read_system(self._system.store, namespace)
        names = [queue.name for queue in view.queues if queue.trouble is None]
        is_watched = view.at_ms - self._painted_at_ms < _WATCHED_MS
        samples = self._note_runs(names, _BLOCKS if is_watched else _FIRST_BLOCKS)
        self._painted_at_ms = view.at_ms
        now_s = view.at_ms // 1000
        rates = {name: rates_of(samples[name]) for name in names}
        by_queue = {name: self._series(now_s, rates[name], [name]) for name in names}
        total = self._series(now_s, summed(rates.values()), names)
        held = read_held(self._system.store, view)
        running = read_running(self._system.store, view, held)
        self._renew_statistics(view.at_ms)
        return Picture(view, judge(view), tuple(held), total, by_queue, running, self._statistics)

    def _renew_statistics(self, now_ms: int) -> None:
        """As often as nodes write them: a look in between would find the same."""
        if now_ms - self._statistics_at_ms < _STATISTICS_EVERY_MS:
            return
        self._statistics_at_ms = now_ms
        try:
            self._statistics = read_statistics(self._system, STATISTICS_MS)
        except StoreRefused:  # a foreign key in their place: the verdict tells of it
            self._statistics = None

    def _note_runs(self, names: Sequence[str], blocks: int) -> dict[str, list[Sample]]:
        """The samples of each queue; on the way, the newest runs are noted."""
        samples: dict[str, list[Sample]] = {}
        for name, (sampled, newest) in zip(names, self._ask(names, blocks), strict=True):
            self._take(name, newest or [])
            samples[name] = [each for each in map(decode_sample, sampled or []) if each is not None]
        return samples

    def _ask(self, names: Sequence[str], blocks: int) -> list[RawReply]:
        """Samples and newest blocks of each queue: a single server is asked for all at once."""
        store, namespace = self._system.store, self._system.settings.namespace
        questions = [_questions(WorkQueueKeys.of(namespace, QueueName(name)), blocks) for name in names]
        if not isinstance(store.connection, ClusterConnection):
            with suppress(StoreRefused):  # a foreign key in the place of one of ours: each on its own
                flat = store.send([each for pair in questions for each in pair], None) if names else []
                return list(zip(flat[::2], flat[1::2], strict=True))
        answers: list[RawReply] = []
        for pair in questions:
            try:
                answers.append(store.send(pair, str(pair[0][1])))
            except StoreRefused:
                answers.append(((), ()))  # the verdict tells of it
        return answers

    def _take(self, name: str, blocks: RawReply) -> None:
        last = self._seen.get(name, b"")
        runs = self._runs.setdefault(name, {})
        for entry_id, fields in blocks:
            if _order(entry_id) <= _order(last):
                break
            second = int(entry_id.split(b"-")[0]) // 1000
            into = runs.setdefault(second, [])
            if len(into) < _MOST_RUNS:
                into += _runs_in(dict(zip(fields[::2], fields[1::2], strict=True)))
        if blocks:
            self._seen[name] = blocks[0][0]
        for second in sorted(runs)[: -2 * SECONDS]:
            del runs[second]

    def _series(self, now_s: int, rates: dict[int, tuple[float, float]], names: Iterable[str]) -> Series:
        seconds = range(now_s - SECONDS + 1, now_s + 1)
        found = [
            [run for name in names for run in self._runs.get(name, {}).get(second, ())] for second in seconds
        ]
        return Series(
            tuple(seconds),
            tuple(rates[second][0] if second in rates else None for second in seconds),
            tuple(rates[second][1] if second in rates else None for second in seconds),
            tuple(_p95([wait for wait, _ in runs]) for runs in found),
            tuple(_p95([run for _, run in runs]) for runs in found),
        )


def _questions(keys: WorkQueueKeys, blocks: int) -> list[Command]:
    return [
        ("LRANGE", keys.named("samples"), 0, KEPT - 1),
        ("XREVRANGE", keys.events, "+", "-", "COUNT", blocks),
    ]


def rates_of(samples: list[Sample]) -> dict[int, tuple[float, float]]:
    """Messages in and out in each second, from samples with the newest first. Pure.

    Samples are not taken to the millisecond, so each stands for the time since the one before. They are
    written when the counters changed: over a longer gap, what happened belongs to its last second.
    """
    rates: dict[int, tuple[float, float]] = {}
    for later, earlier in pairwise(samples):
        last_s, first_s = later.at_ms // 1000, earlier.at_ms // 1000
        entered, left = max(0, later.entered - earlier.entered), max(0, later.left - earlier.left)
        span_ms = later.at_ms - earlier.at_ms
        is_short = span_ms <= _SHORT_MS
        scale = 1000 / max(1, span_ms) if is_short else 1.0
        now = (round(entered * scale, 1), round(left * scale, 1))
        for second in range(max(first_s + 1, last_s - 2 * SECONDS), last_s):
            rates[second] = now if is_short else (0.0, 0.0)
        rates[last_s] = now
    return rates


def summed(rates: Iterable[dict[int, tuple[float, float]]]) -> dict[int, tuple[float, float]]:
    """The rates of several queues together. Pure."""
    total: dict[int, tuple[float, float]] = {}
    for each in rates:
        for second, (in_per_s, out_per_s) in each.items():
            known = total.get(second, (0.0, 0.0))
            total[second] = (known[0] + in_per_s, known[1] + out_per_s)
    return total


def _runs_in(fields: dict[bytes, bytes]) -> list[tuple[float, float]]:
    for codec in fields.keys() - _NO_RUNS:
        with suppress(KeyError, ValueError, zlib.error):  # an entry of another kind, or of a later version
            return [
                (float(event["wait_ms"]), float(event["run_ms"]))
                for event in decode_block(codec.decode(), fields[codec])
                if event.get("event") == SUCCEEDED and event.get("attempt") == 1 and "wait_ms" in event
            ]
    return []


def _p95(values: list[float]) -> float | None:
    if not values:
        return None
    return round(sorted(values)[-(len(values) // 20) - 1], 3)


def _order(entry_id: bytes) -> tuple[int, int]:
    first, _, second = entry_id.partition(b"-")
    return int(first or 0), int(second or 0)
