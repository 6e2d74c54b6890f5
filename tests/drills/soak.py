"""The soak: tasks of every kind for a long time, results awaited, no fault. Then everything is as before.

    make soak                   half an hour at 1,500 a second
    make soak MINUTES=3

Nothing is struck here: what it looks for is what piles up, gets stuck or goes missing by itself.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import psutil

from mqworker import Job, chain, group
from mqworker.errors import MqworkerError, TaskCancelled, TaskFailed
from mqworker.model.verdict import Health, judge
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.steps import QueueCounts
from mqworker.settings import Settings
from tests.drills.node import DrillNode
from tests.drills.soak_app import LIMITED_QUEUE, QUEUE, RESULT_TTL_S, build_app
from tests.support.deadline import wait_until
from tests.support.ledger import LedgerWriter
from tests.support.real_server import RealServer

APP = "tests.drills.soak_app:app"
QUEUES = (QUEUE, LIMITED_QUEUE)
TICK_S = 0.1
PATIENCE_S = 120.0
MOST_SHOWN = 10
"""How long a result may take: far longer than anything here should, on a machine that has the time."""

SHARES = {
    "quick": 0.50,
    "work": 0.15,
    "fetch": 0.10,
    "retrying": 0.08,
    "delayed": 0.06,
    "limited": 0.05,
    "once": 0.03,
    "failing": 0.01,
    "cancelled": 0.01,
    "workflow": 0.01,
}
"""What part of the calls is of which kind; each workflow is six messages."""
WORKFLOW_SIZE = 6
TOTALS = ("enqueued", "succeeded", "buried", "cancelled", "expired", "retried", "released", "reclaimed")

SERVER_SLACK_BYTES = 8 * 1024 * 1024
PROCESS_SLACK_BYTES = 24 * 1024 * 1024
"""By how much memory may have grown since the end of the warm-up: allocators give back late."""


@dataclass
class Figures:
    """What a soak saw."""

    seconds: float = 0.0
    called: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)
    slowest_s: dict[str, float] = field(default_factory=dict)
    """By kind, from the call to the result."""
    problems: list[str] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    held: int = 0
    waiting: int = 0
    server_bytes: tuple[int, int] = (0, 0)
    """After the warm-up, and at the end."""
    process_bytes: dict[str, tuple[int, int]] = field(default_factory=dict)
    restarts: int = 0
    unhealthy: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Nothing lost, nothing stuck, nothing grown."""
        ended = sum(self.totals[name] for name in ("succeeded", "buried", "cancelled", "expired"))
        assert self.problems == [], self.problems[:5]
        assert self.called == self.answered, f"called {self.called}, answered {self.answered}"
        assert self.totals["enqueued"] == ended, dict(self.totals)
        assert (self.held, self.waiting) == (0, 0)
        assert self.restarts == 0
        before, after = self.server_bytes
        assert after <= before + SERVER_SLACK_BYTES, f"the server grew from {before:,} to {after:,} bytes"
        for name, (base, grown) in self.process_bytes.items():
            assert grown <= base + PROCESS_SLACK_BYTES, f"{name} grew from {base:,} to {grown:,} bytes"

    def lines(self) -> Iterator[str]:
        """For a person."""
        calls = sum(self.called.values())
        yield f"{calls:,} calls in {self.seconds:.0f} s ({calls / max(self.seconds, 0.1):,.0f} a second)"
        yield "messages: " + ", ".join(f"{name} {count:,}" for name, count in sorted(self.totals.items()))
        yield f"held {self.held}, waiting {self.waiting}, restarts {self.restarts}"
        slowest = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in sorted(self.slowest_s.items()))
        yield f"slowest answers: {slowest}"
        yield f"server memory {_mib(self.server_bytes)}"
        yield "; ".join(f"{name} {_mib(pair)}" for name, pair in sorted(self.process_bytes.items()))
        for reason, count in self.unhealthy.most_common(5):
            yield f"status said {count} x: {reason}"
        yield from self.problems[:10]


class Soak:
    """A server, a node, and callers."""

    def __init__(self, folder: Path, server: RealServer) -> None:
        self._server = server
        settings = Settings(redis_url=server.url, result_ttl_s=RESULT_TTL_S, events_kept=10_000)
        self.app, self._tasks = build_app(settings)
        self.node = DrillNode(
            folder / "node",
            server.url,
            LedgerWriter(folder),
            folder,
            app=APP,
            settings={
                "events_kept": 10_000,
                "result_ttl_s": RESULT_TTL_S,
                "heartbeat_interval_s": 2.0,
                "heartbeat_timeout_s": 15.0,
            },
        )
        self.figures = Figures()
        self._chance = random.Random(7)  # noqa: S311 - no secret
        self._lock = threading.Lock()
        self._unanswered: dict[str, tuple[str, float, Job[Any]]] = {}
        self._ended: Queue[tuple[str, float, int, Job[Any]] | None] = Queue()
        self._flows: Queue[tuple[float, int, Any] | None] = Queue()

    def run(self, seconds: float, per_s: float) -> Figures:
        """Warm up for a fifth of the time, measure, go on for the rest, measure again."""
        self.node.start()
        self.node.wait_complete()
        rest_s = min(2 * RESULT_TTL_S, seconds / 10)
        with self._waiters():
            self._call(seconds / 5, per_s)
            self._settle_down(rest_s)
            server_base, process_base = self._server_bytes(), self._process_bytes()
            self._call(seconds * 4 / 5, per_s)
            self._settle_down(rest_s)
        figures = self.figures
        figures.seconds = seconds
        counts = [self._counts(queue) for queue in QUEUES]
        figures.totals = Counter({name: sum(each.totals.get(name, 0) for each in counts) for name in TOTALS})
        figures.held = sum(each.leased for each in counts)
        figures.waiting = sum(each.waiting for each in counts)
        figures.restarts = sum(child["restarts"] for child in self.node.snapshot()["children"])
        figures.server_bytes = (server_base, self._server_bytes_at_rest(server_base))
        now = self._process_bytes()
        figures.process_bytes = {name: (base, now.get(name, 0)) for name, base in process_base.items()}
        return figures

    def close(self) -> None:
        """End everything."""
        self.app.close()
        self.node.close()

    # Calling

    def _call(self, seconds: float, per_s: float) -> None:
        began, ticks = time.monotonic(), 0
        owed = dict.fromkeys(SHARES, 0.0)
        while (passed_s := time.monotonic() - began) < seconds:
            ticks += 1
            for kind, share in SHARES.items():
                size = WORKFLOW_SIZE if kind == "workflow" else 1
                owed[kind] += share * per_s * TICK_S / size
                count, owed[kind] = int(owed[kind]), owed[kind] % 1
                if count:
                    self._call_some(kind, count)
            if ticks % 50 == 0:
                self._look()
            time.sleep(max(0.0, ticks * TICK_S - passed_s))

    def _call_some(self, kind: str, count: int) -> None:
        self.figures.called[kind] += count
        began, numbers = time.monotonic(), [(number,) for number in range(count)]
        jobs: list[Any]
        if kind == "delayed":
            jobs = self._tasks["quick"].using(delay=self._chance.uniform(0.2, 2.0)).enqueue_many(numbers)
        elif kind == "cancelled":
            jobs = self._tasks["quick"].using(delay=30).enqueue_many(numbers)
            for job in jobs:
                job.cancel()
        elif kind == "workflow":
            for (number,) in numbers:
                self._flows.put((began, number, self._workflow(number).enqueue(ttl=60)))
            return
        else:
            jobs = self._tasks[kind].enqueue_many(numbers)
        if kind == "once":  # acknowledged before it runs: it has no result
            self.figures.answered[kind] += count
            return
        for number, job in enumerate(jobs):
            self._await_job(kind, began, number, job)

    def _workflow(self, number: int) -> Any:  # noqa: ANN401 - of any result
        add = self._tasks["add"]
        return group(chain(add.s(number), add.s()) for _ in range(WORKFLOW_SIZE // 2))

    # Awaiting

    def _await_job(self, kind: str, began: float, number: int, job: Job[Any]) -> None:
        with self._lock:
            self._unanswered[job.id] = (kind, began, job)

        def note_end(_: object) -> None:
            with self._lock:
                self._unanswered.pop(job.id, None)
            self._ended.put((kind, time.monotonic() - began, number, job))

        job.begin_wait().add_done_callback(note_end)

    @contextmanager
    def _waiters(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._check_jobs, daemon=True)]
        threads += [threading.Thread(target=self._check_workflows, daemon=True) for _ in range(16)]
        for thread in threads:
            thread.start()
        yield
        self._ended.put(None)
        for _ in threads[1:]:
            self._flows.put(None)
        for thread in threads:
            thread.join()

    def _check_jobs(self) -> None:
        while (ended := self._ended.get()) is not None:
            kind, waited_s, number, job = ended
            try:
                is_right = job.result(timeout=0) == number and kind not in {"failing", "cancelled"}
            except TaskFailed:
                is_right = kind == "failing"
            except TaskCancelled:
                is_right = kind == "cancelled"
            except MqworkerError as error:
                is_right = False
                self.figures.problems.append(f"{kind} {job.id}: {type(error).__name__}: {error}")
            if not is_right:
                self.figures.problems.append(f"{kind} {job.id}: not what it should be")
            self._note_answer(kind, waited_s)

    def _check_workflows(self) -> None:
        while (begun := self._flows.get()) is not None:
            began, number, flow = begun
            try:
                assert flow.result(timeout=PATIENCE_S) == [number + 2] * (WORKFLOW_SIZE // 2)
            except (MqworkerError, AssertionError) as error:
                self.figures.problems.append(f"workflow: {type(error).__name__}: {error}")
            self._note_answer("workflow", time.monotonic() - began)

    def _note_answer(self, kind: str, waited_s: float) -> None:
        with self._lock:
            self.figures.answered[kind] += 1
            self.figures.slowest_s[kind] = max(self.figures.slowest_s.get(kind, 0.0), waited_s)

    # Looking

    def _settle_down(self, rest_s: float) -> None:
        """All answered, nothing held; dead letters, which are meant to stay, are put away."""
        try:
            wait_until(
                lambda: self.figures.called.total() == self.figures.answered.total(),
                "all is answered",
                PATIENCE_S,
            )
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self._unanswered_lines()])) from None
        wait_until(lambda: all(self._is_empty(queue) for queue in QUEUES), "nothing is left", PATIENCE_S)
        for queue in QUEUES:
            self.app.work_queue(queue).purge_dead()
        time.sleep(rest_s)  # results are rotated away meanwhile

    def _unanswered_lines(self) -> Iterator[str]:
        """What was called and not answered, and where it is."""
        for kind, called in self.figures.called.items():
            if called != self.figures.answered[kind]:
                yield f"{kind}: {called:,} called, {self.figures.answered[kind]:,} answered"
        yield from (f"{queue}: {self._counts(queue)}" for queue in QUEUES)
        now = time.monotonic()
        with self._lock:
            left = [*self._unanswered.values()][:MOST_SHOWN]
        yield from (
            f"{kind} {job.id}: {job.status()}, called {now - at_s:.0f} s ago" for kind, at_s, job in left
        )
        yield from self.figures.problems[:MOST_SHOWN]
        yield from (f"status said {count} x: {reason}" for reason, count in self.figures.unhealthy.items())

    def _is_empty(self, queue: str) -> bool:
        counts = self._counts(queue)
        return counts.waiting + counts.leased == 0

    def _counts(self, queue: str) -> QueueCounts:
        return self.app.work_queue(queue).counts()

    def _look(self) -> None:
        verdict = judge(read_system(self.app.work_queue(QUEUE).store, self.app.settings.namespace))
        if verdict.health is not Health.HEALTHY:
            for reason in verdict.reasons:
                if "buried" not in reason:  # which is what the failing ones are for
                    self.figures.unhealthy[reason] += 1

    def _server_bytes(self) -> int:
        key = self.app.work_queue(QUEUE).calls.keys.meta
        (info,) = self.app.work_queue(QUEUE).store.connection.execute([("INFO", "memory")], key)
        text = info.decode() if isinstance(info, bytes) else str(info)
        used = next(line for line in text.splitlines() if line.startswith("used_memory:"))
        return int(used.partition(":")[2])

    def _server_bytes_at_rest(self, base: int) -> int:
        """Results are forgotten after twice their time at the latest."""
        most = base + SERVER_SLACK_BYTES
        return _lowest(self._server_bytes, lambda used: used <= most, 3 * RESULT_TTL_S)

    def _process_bytes(self) -> dict[str, int]:
        pids = self.node.live_children()
        return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


def _lowest(measure: Callable[[], int], is_enough: Callable[[int], bool], deadline_s: float) -> int:
    ends_at = time.monotonic() + deadline_s
    while not is_enough(measured := measure()) and time.monotonic() < ends_at:
        time.sleep(0.5)
    return measured


def _mib(pair: tuple[int, int]) -> str:
    return f"{pair[0] / 2**20:.1f} -> {pair[1] / 2**20:.1f} MiB"


def main() -> int:
    """Soak for a while and tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--per-second", type=float, default=1_500.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mqw-soak-") as folder, RealServer() as server:
        soak = Soak(Path(folder), server)
        try:
            figures = soak.run(asked.minutes * 60, asked.per_second)
        finally:
            soak.close()
    for line in figures.lines():
        sys.stdout.write(line + "\n")
    figures.check()
    return 0


if __name__ == "__main__":
    sys.exit(main())
