"""The account of a drill: what really happened, in numbers drawn from its ledger.

    T key                                  about to publish         P key message         published
    U key                                  nobody knows (time-out)  R                     the server is killed
    E key message attempt fence pid at_ms  a task began             F (the same words)    it reached its end
    K pid actor                            killed by the drill      S pid actor           stopped for a while

`key` is what the application calls the work; a message stored twice would show as one key with two messages.
What the queue says of each delivery (A, "acknowledged") comes from its stream of events, see `evidence.py`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tests.support.ledger import Line


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a task, as it noted itself."""

    key: str
    message: str
    attempt: int
    fence: int
    pid: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What the queue recorded of one delivery: succeeded, retried, released, crashed, reclaimed, buried."""

    message: str
    attempt: int
    event: str


@dataclass(frozen=True)
class Account:
    """The numbers of a drill. Pure: everything is derived from lines, events and the dead."""

    lines: Sequence[Line]
    endings: Sequence[Ending] = ()
    ended_pids: Mapping[int, str] = field(default_factory=dict)
    """Processes that the supervisor collected, and why they ended."""

    @cached_property
    def attempted(self) -> set[str]:
        """Keys that somebody meant to publish."""
        return {line[1] for line in self.lines if line[0] == "T"}

    @cached_property
    def published(self) -> dict[str, str]:
        """Keys that were acknowledged to the producer, with their message."""
        return {line[1]: line[2] for line in self.lines if line[0] == "P"}

    @cached_property
    def unknown(self) -> set[str]:
        """Keys of which the producer does not know."""
        return {line[1] for line in self.lines if line[0] == "U"}

    @cached_property
    def executions(self) -> list[Execution]:
        """Every beginning of a task."""
        return self._runs("E")

    @cached_property
    def finished(self) -> list[Execution]:
        """Every end of a task, for tasks that note it."""
        return self._runs("F")

    @cached_property
    def kills(self) -> Counter[str]:
        """How often each kind of process was killed by the drill."""
        return Counter(line[2].partition(":")[0] for line in self.lines if line[0] == "K")

    @cached_property
    def server_kills(self) -> int:
        """How often the server was."""
        return sum(1 for line in self.lines if line[0] == "R")

    @cached_property
    def lost(self) -> set[str]:
        """Published and never run."""
        return set(self.published) - {run.key for run in self.executions}

    @cached_property
    def unsettled(self) -> set[str]:
        """Published, and the queue does not say that it succeeded or was buried."""
        over = {each.message for each in self.endings if each.event in {"succeeded", "buried"}}
        return {key for key, message in self.published.items() if message not in over}

    @cached_property
    def unexpected(self) -> set[str]:
        """Run, though nobody meant to publish it."""
        return {run.key for run in self.executions} - self.attempted

    @cached_property
    def recovered(self) -> set[str]:
        """Run, though its producer does not know whether it was stored."""
        return {run.key for run in self.executions} & self.unknown

    @cached_property
    def stored_twice(self) -> set[str]:
        """Keys that were run as two messages: a call repeated after a lost reply was not recognised."""
        messages = defaultdict(set)
        for run in self.executions:
            messages[run.key].add(run.message)
        return {key for key, some in messages.items() if len(some) > 1}

    @cached_property
    def duplicates(self) -> int:
        """Runs beyond the first of each key, those that the task itself asked for (retries) apart."""
        meant = sum(1 for run in self.executions if self._was(run, "retried"))
        return len(self.executions) - len({run.key for run in self.executions}) - meant

    @cached_property
    def acked_twice(self) -> set[str]:
        """Messages with more than one success."""
        counts = Counter(each.message for each in self.endings if each.event == "succeeded")
        return {message for message, count in counts.items() if count > 1}

    @cached_property
    def struck_pids(self) -> set[int]:
        """Killed or stopped by the drill, or ended by the supervisor as a consequence of that."""
        by_drill = {int(line[1]) for line in self.lines if line[0] in {"K", "S"}}
        by_supervisor = {pid for pid, cause in self.ended_pids.items() if cause.startswith(CONSEQUENCES)}
        return by_drill | by_supervisor

    @cached_property
    def unexplained(self) -> list[Execution]:
        """Runs that were not the one that was acknowledged, though nothing happened to their process."""
        repeated = {key for key, count in Counter(run.key for run in self.executions).items() if count > 1}
        return [
            run
            for run in self.executions
            if run.key in repeated
            and not self._was(run, "succeeded", "retried")
            and run.pid not in self.struck_pids
        ]

    @cached_property
    def acked_unrun(self) -> list[Ending]:
        """Successes of deliveries that nobody ran: somebody acknowledged with the fence of another."""
        ran = {(run.message, run.attempt) for run in self.executions}
        return [
            each
            for each in self.endings
            if each.event == "succeeded" and (each.message, each.attempt) not in ran
        ]

    @cached_property
    def without_ending(self) -> list[Execution]:
        """Runs of which the queue has not recorded exactly one ending: it lost sight of a delivery."""
        endings = Counter((each.message, each.attempt) for each in self.endings)
        return [run for run in self.executions if endings[run.message, run.attempt] != 1]

    @cached_property
    def out_of_order(self) -> int:
        """First runs that came after that of a key published later; keys end in their number."""
        first: dict[str, int] = {}
        for run in sorted(self.executions, key=lambda each: each.at_ms):
            first.setdefault(run.key, run.at_ms)
        numbers = [int(key.rpartition("-")[2]) for key in first]
        highest, late = -1, 0
        for number in numbers:
            late += number < highest
            highest = max(highest, number)
        return late

    @cached_property
    def ending_counts(self) -> Counter[str]:
        """How deliveries ended."""
        return Counter(each.event for each in self.endings)

    def check(self, *, may_lose: bool = False) -> None:
        """The promise: nothing lost, nothing acknowledged twice, every duplicate explained."""
        assert not self.acked_twice, f"acknowledged twice: {sorted(self.acked_twice)[:5]}"
        assert not self.unexpected, f"never published: {sorted(self.unexpected)[:5]}"
        assert not self.stored_twice, f"stored twice: {sorted(self.stored_twice)[:5]}"
        assert not self.acked_unrun, f"{len(self.acked_unrun)} acked and never run: {self.acked_unrun[:5]}"
        if may_lose:
            return
        assert not self.lost, f"{len(self.lost)} lost: {sorted(self.lost)[:5]}"
        assert not self.unsettled, f"{len(self.unsettled)} never settled: {sorted(self.unsettled)[:5]}"
        assert not self.unexplained, f"{len(self.unexplained)} unexplained: {self.unexplained[:5]}"
        assert not self.without_ending, f"{len(self.without_ending)} in no state: {self.without_ending[:5]}"

    def check_exact(self) -> None:
        """Where nothing died: whatever was published ran once, what may run at most once too."""
        assert not self.stored_twice, f"stored twice: {sorted(self.stored_twice)[:5]}"
        assert not self.acked_twice, f"acknowledged twice: {sorted(self.acked_twice)[:5]}"
        assert not self.unexpected, f"never published: {sorted(self.unexpected)[:5]}"
        assert not self.unsettled, f"{len(self.unsettled)} never settled: {sorted(self.unsettled)[:5]}"
        assert not self.lost, f"{len(self.lost)} lost: {sorted(self.lost)[:5]}"
        assert self.duplicates == 0

    def summary(self) -> str:
        """One line: how often the drill really struck, and what came of it."""
        kills = ", ".join(f"{actor} x{count}" for actor, count in sorted(self.kills.items())) or "nobody"
        if self.server_kills:
            kills += f", server x{self.server_kills}"
        return (
            f"{len(self.published):,} published, {len(self.executions):,} runs; killed {kills}; "
            f"lost {len(self.lost)}, acked twice {len(self.acked_twice)}, "
            f"duplicates {self.duplicates} (unexplained {len(self.unexplained)}), "
            f"recovered {len(self.recovered)} of {len(self.unknown)} unknown, "
            f"late by order {self.out_of_order}; {_shown(self.ending_counts)}"
        )

    @cached_property
    def _events_by_delivery(self) -> dict[tuple[str, int], set[str]]:
        events: dict[tuple[str, int], set[str]] = defaultdict(set)
        for each in self.endings:
            events[each.message, each.attempt].add(each.event)
        return events

    def _was(self, run: Execution, *events: str) -> bool:
        return not self._events_by_delivery.get((run.message, run.attempt), set()).isdisjoint(events)

    def _runs(self, kind: str) -> list[Execution]:
        return [
            Execution(key, message, int(attempt), int(fence), int(pid), int(at_ms))
            for what, key, message, attempt, fence, pid, at_ms in (
                line for line in self.lines if line[0] == kind
            )
            if what == kind
        ]


CONSEQUENCES = ("the dispatcher ended", "drain", "hard time-out", "its pipe broke", "sent something")
"""Why the supervisor kills a worker that has done nothing wrong."""


def _shown(counts: Counter[str]) -> str:
    return ", ".join(f"{event} {count:,}" for event, count in sorted(counts.items()) if event != "enqueued")
