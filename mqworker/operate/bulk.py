"""Bulk: retry, drop or cancel all jobs that fit a filter, counted before, throttled, written down.

There is no stored operation that could get stuck. A bulk means what fitted at one instant: dead letters that
were dead by then, messages that were enqueued by then. Each step is a script that does nothing to a job which
is no longer so. So whoever is killed half way gives the same command again, with the same instant (it stands
in the audit), and gets the rest done, nothing twice: what was put back and died anew died after the instant.

A line moves while it is gone through, so it is gone through until nothing is left that fits.
"""

from __future__ import annotations

import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from mqworker.errors import InvalidArgument
from mqworker.model.clock import SystemClock
from mqworker.model.names import MessageId, shown
from mqworker.operate.audit import Deed, note
from mqworker.operate.job_filter import JobFilter, fits, parse_filter
from mqworker.operate.search import FoundJob, lying
from mqworker.operate.system import System
from mqworker.operate.wording import counted
from mqworker.queues.work.drop import drop
from mqworker.queues.work.queue import WorkQueue
from mqworker.store.script import Call, RawReply

MOST_PREVIEWED = 200_000
HIGHEST_RATE = 10_000
_STEP = 100
"""Jobs in one round trip."""
_MARGIN = 50
"""So far a message may have moved in its line since it was seen, either way."""
_MOST_PASSES = 1_000
"""Taking out what was seen moves what was not: half of it is passed over, and found by the next pass."""


@dataclass(frozen=True, slots=True)
class _Kind:
    states: tuple[str, ...]
    verb: str
    done: str
    is_destructive: bool


KINDS = {
    "retry": _Kind(("dead",), "Put back in line", "back in line", is_destructive=False),
    "drop": _Kind(("dead",), "Throw away", "thrown away", is_destructive=True),
    "cancel": _Kind(
        ("ready", "delayed", "limited", "leased"),
        "Cancel",
        "cancelled, or asked to stop",
        is_destructive=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Bulk:
    """What is to be done to all that fits some words."""

    action: str
    words: str
    rate: int | None = None
    """Jobs in a second at the most."""
    before_ms: int | None = None
    """Only what was dead, or enqueued, at this instant of the server; None: now."""

    @property
    def kind(self) -> _Kind:
        """What the action is."""
        return KINDS[self.action]

    @property
    def command(self) -> str:
        """The command line that does the same, or what is left of it."""
        parts = ["mqworker", "bulk", self.action, *shlex.split(self.words)]
        parts += [] if self.rate is None else ["--rate", str(self.rate)]
        parts += [] if self.before_ms is None else ["--before", str(self.before_ms)]
        return shlex.join(parts)


@dataclass(frozen=True, slots=True)
class BulkPreview:
    """How many fit now."""

    bulk: Bulk
    """With its instant."""
    count: int
    looked_at: int
    is_complete: bool
    """False: there was more than a preview looks at, and more may fit."""
    samples: tuple[FoundJob, ...]

    @property
    def effect(self) -> str:
        """A sentence that says what would happen."""
        jobs = counted(self.count, "job")
        many = jobs if self.is_complete else f"At least {jobs}, of the first {self.looked_at:,} looked at,"
        rate = self.bulk.rate
        pace = "" if not rate or self.count <= rate else f" It takes {self.count // rate} s, at {rate:,}/s."
        return f"{many} fit{'s' if self.count == 1 and self.is_complete else ''}.{pace}"


def preview_bulk(system: System, bulk: Bulk) -> BulkPreview:
    """Count, without doing anything; raises what tells that it cannot be done."""
    wanted, bulk = _checked(system, bulk)
    count = looked_at = 0
    samples: list[FoundJob] = []
    for job in _look_through(system, wanted, bulk):
        looked_at += 1
        if job is not None:
            count += 1
            samples += [job] if len(samples) < _SAMPLES else []
        if looked_at >= MOST_PREVIEWED:
            return BulkPreview(bulk, count, looked_at, is_complete=False, samples=tuple(samples))
    return BulkPreview(bulk, count, looked_at, is_complete=True, samples=tuple(samples))


@dataclass(slots=True)
class Progress:
    """How far a bulk has come; others may look, and stop it."""

    done: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_stopped(self) -> bool:
        """Whether somebody stopped it."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Let it end before its next step."""
        self._stop.set()

    def rest(self, seconds: float) -> None:
        """Wait so long, or until it is stopped."""
        self._stop.wait(seconds)


def run_bulk(system: System, bulk: Bulk, who: str, progress: Progress | None = None) -> str:
    """Do it, write it down before and after; a sentence that says how many."""
    progress = progress or Progress()
    wanted, bulk = _checked(system, bulk)
    # First: whoever is killed left behind how to go on.
    note(system, Deed(who, f"bulk-{bulk.action}", wanted.queue, bulk.words, 0, "began", bulk.command))
    try:
        _act_until_nothing_fits(system, wanted, bulk, progress)
    except BaseException as error:  # KeyboardInterrupt too: what was done is written down in any case
        outcome = f"ended early after {counted(progress.done, 'job')}: {type(error).__name__} {error}".strip()
        note(system, _deed(bulk, wanted, who, progress.done, outcome))
        raise
    end = "stopped after" if progress.is_stopped else ""
    outcome = f"{end} {counted(progress.done, 'job')} {bulk.kind.done}".strip()
    note(system, _deed(bulk, wanted, who, progress.done, outcome))
    return outcome


_SAMPLES = 5


def _deed(bulk: Bulk, wanted: JobFilter, who: str, count: int, outcome: str) -> Deed:
    return Deed(who, f"bulk-{bulk.action}", wanted.queue, bulk.words, count, outcome, bulk.command)


def _checked(system: System, bulk: Bulk) -> tuple[JobFilter, Bulk]:
    if bulk.action not in KINDS:
        raise InvalidArgument(f"bulk action is {shown(bulk.action)}; accepted are {', '.join(KINDS)}")
    if bulk.rate is not None and not 1 <= bulk.rate <= HIGHEST_RATE:
        raise InvalidArgument(f"rate is {bulk.rate}; accepted are 1 to {HIGHEST_RATE:,} jobs in a second")
    wanted, possible = parse_filter(bulk.words), bulk.kind.states
    if wanted == JobFilter():
        raise InvalidArgument("the filter is empty; accepted are words that say which jobs are meant")
    if wrong := [state for state in wanted.states if state not in possible]:
        raise InvalidArgument(
            f"state is {shown(wrong[0])}; accepted for {bulk.action} are {', '.join(possible)}"
        )
    if wanted.queue:
        system.queue(wanted.queue)  # raises what tells of a queue that does not exist
    before_ms = system.now_ms() if bulk.before_ms is None else bulk.before_ms
    return replace(wanted, states=wanted.states or possible), replace(bulk, before_ms=before_ms)


def _places(system: System, wanted: JobFilter) -> list[tuple[WorkQueue, str]]:
    names = [wanted.queue] if wanted.queue else system.queue_names()
    # What is held last: what waits may be taken meanwhile, and is then found there.
    order = [state for state in ("dead", "ready", "delayed", "limited", "leased") if state in wanted.states]
    return [(system.open_queue(name), state) for state in order for name in names]


def _look_through(system: System, wanted: JobFilter, bulk: Bulk) -> Iterator[FoundJob | None]:
    """Everything in these states, None for what does not fit."""
    now_ms = system.now_ms()
    for queue, state in _places(system, wanted):
        for job, candidate, offset in lying(queue, state, 0, wanted):
            is_meant = job is not None and _was_there(job, bulk) and fits(wanted, candidate, now_ms)
            yield replace(job, place=offset - 1) if job is not None and is_meant else None


def _was_there(job: FoundJob, bulk: Bulk) -> bool:
    since_ms = job.at_ms if job.state == "dead" else job.enqueued_at_ms
    return since_ms is not None and bulk.before_ms is not None and since_ms <= bulk.before_ms


def _act_until_nothing_fits(system: System, wanted: JobFilter, bulk: Bulk, progress: Progress) -> None:
    pace, asked = _Pace(bulk.rate, progress), set[str]()
    for _ in range(_MOST_PASSES):
        done_before = progress.done
        for queue, state in _places(system, wanted):
            for step in _steps(system, wanted, bulk, queue, state):
                fresh = [job for job in step if job.id not in asked]
                done = _act(system, bulk.action, queue, state, fresh)
                asked |= {job.id for job in fresh} if state == "leased" else set()
                progress.done += done
                pace.wait()
                if progress.is_stopped:
                    return
        if progress.done == done_before:
            return


def _steps(
    system: System, wanted: JobFilter, bulk: Bulk, queue: WorkQueue, state: str
) -> Iterator[list[FoundJob]]:
    """One place after another, a few jobs at a time. Each page is read when it is its turn."""
    now_ms, size = system.now_ms(), min(_STEP, bulk.rate or _STEP)
    step: list[FoundJob] = []
    for job, candidate, offset in lying(queue, state, 0, wanted):
        if job is not None and _was_there(job, bulk) and fits(wanted, candidate, now_ms):
            step.append(replace(job, place=offset - 1))
        if len(step) == size:
            yield step
            step = []
    if step:
        yield step


def _act(system: System, action: str, queue: WorkQueue, state: str, jobs: list[FoundJob]) -> int:
    ids = [MessageId(job.id) for job in jobs]
    if not ids:
        return 0
    if action == "retry":
        return len(queue.revive(*ids))
    if action == "drop":
        return len(drop(queue, ids, events_kept=system.settings.events_kept))
    if state == "leased":
        return len(queue.store.run_together([queue.calls.request_cancel(each) for each in ids]))
    return sum(verdict == 1 for verdict in queue.store.run_together(_cancels(queue, jobs)))


def _cancels(queue: WorkQueue, jobs: list[FoundJob]) -> list[Call[int]]:
    """Each looks only around the place where its message was seen; one that moved farther waits its turn."""
    keys = queue.calls.keys
    counts: RawReply = queue.store.send(
        [("LLEN", keys.named("ready")), ("ZCARD", keys.named("urgent"))], keys.meta
    )
    length, urgent = counts
    calls: list[Call[int]] = []
    for job in jobs:
        # cancel.lua counts windows of the line from its back, of the urgent ones from their front.
        from_back = job.place if job.place < urgent else length - 1 - (job.place - urgent)
        offset = max(0, from_back - _MARGIN)
        calls.append(queue.calls.cancel(MessageId(job.id), offset, 2 * _MARGIN))
    return calls


class _Pace:
    """No more than so many in a second, from the beginning on."""

    def __init__(self, rate: int | None, progress: Progress) -> None:
        self._rate = rate
        self._progress = progress
        self._clock = SystemClock()
        self._began_s = self._clock.monotonic_s()

    def wait(self) -> None:
        """Until the next ones may follow."""
        if self._rate:
            early_s = self._progress.done / self._rate - (self._clock.monotonic_s() - self._began_s)
            self._progress.rest(max(0.0, early_s))
