"""One job as a page shows it: why it does not run, its route, its attempts with wait and run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mqworker.errors import InvalidArgument, MqworkerError, StoreUnavailable
from mqworker.model.view import QueueView
from mqworker.operate.body import Secrets, read_secrets
from mqworker.operate.job_filter import tags_in
from mqworker.operate.lake import find_in_lake
from mqworker.operate.reasons import marked_reasons, split_at_instants, with_instants
from mqworker.operate.system import System
from mqworker.operate.visible_body import kept_as
from mqworker.operate.wording import moment
from mqworker.queues.work.snapshots import read_system
from mqworker.queues.work.steps import WAITING, WorkQueueSteps
from mqworker.queues.work.trace import PastEvent, Trace
from mqworker.tasks.job_steps import JobSteps
from mqworker.tasks.running.job_log import LogLine, read_log
from mqworker.tasks.running.progress import Progress

ROUTE = ("enqueued", "delayed", "limited", "ready", "held", "settled")
_ENDS = {"succeeded", "cancelled", "expired", "buried", "purged"}
_BEGINNINGS = {"enqueued", "revived"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One delivery that began: from when it could have begun until it ended."""

    number: int
    outcome: str
    waiting_since_ms: int
    started_at_ms: int
    ended_at_ms: int
    worker: str = ""
    node: str = ""
    error: str = ""
    is_exact: bool = True
    """False where only its end is known, as of a crash: it began somewhere in between."""

    @property
    def wait_ms(self) -> int:
        """How long it waited."""
        return max(0, self.started_at_ms - self.waiting_since_ms)

    @property
    def run_ms(self) -> int:
        """How long it ran."""
        return max(0, self.ended_at_ms - self.started_at_ms)


@dataclass(frozen=True, slots=True)
class JobView:
    """All of it, at one moment."""

    trace: Trace
    at_ms: int
    marked: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    """The first one first."""
    log: tuple[LogLine, ...] = ()
    """What its task logged last, the oldest first."""
    progress: Progress | None = None
    secrets: Secrets = field(default_factory=dict)
    """Which arguments are not to be shown."""
    source: Literal["redis", "lake"] = "redis"
    """Where all this was found."""

    @property
    def task(self) -> str:
        """The task's name, as far as anything still tells it."""
        if self.trace.delivery is not None:
            return str(self.trace.delivery.task)
        return next((str(past.facts["task"]) for past in self.trace.past if "task" in past.facts), "?")

    @property
    def kept(self) -> str:
        """A word for how its body is stored, such as `encrypted`; empty where that is usual."""
        return "" if self.trace.delivery is None else kept_as(self.trace.delivery.body)

    @property
    def tags(self) -> tuple[str, ...]:
        """Words to find it by."""
        return tags_of(self.trace)

    @property
    def plain_reasons(self) -> list[str]:
        """The sentences with instants in local time."""
        return [with_instants(each, lambda at_ms: moment(at_ms, self.at_ms)) for each in self.marked]

    @property
    def reasons(self) -> list[list[str | int]]:
        """The sentences in parts of text and instants."""
        return [split_at_instants(each) for each in self.marked]

    @property
    def place(self) -> str:
        """Where on the route it is now."""
        where = self.trace.where
        if where.state in WAITING:
            return where.state
        return "held" if where.state in {"leased", "delivered"} else "settled"

    @property
    def passed(self) -> set[str]:
        """The places on the route that it surely passed, by what its record and events tell."""
        delivery, events = self.trace.delivery, {past.event for past in self.trace.past}
        was_held = bool(self.attempts) or (delivery is not None and delivery.deliveries > 0)
        places = {"enqueued"}
        if was_held or self.place == "held":
            places |= {"ready", "held"}
        if "retried" in events or (
            delivery is not None and delivery.failures > 0 and self.place != "settled"
        ):
            places.add("delayed")
        return places

    @property
    def ended(self) -> PastEvent | None:
        """How it ended, as far as events are kept."""
        return next((past for past in self.trace.past if past.event in _ENDS), None)


def read_job(system: System, message: str, queue: str | None) -> JobView:
    """Find a job and all that is known of it; raises what tells what may have become of it."""
    try:
        work, found = system.find(message, queue)
    except (InvalidArgument, StoreUnavailable):
        raise
    except MqworkerError:
        archived = find_in_lake(system, message, queue)
        if archived is None:
            raise
        return _from_lake(archived, system.now_ms(), str(system.settings.lake))
    view = read_system(system.store, system.settings.namespace)
    unknown = QueueView(found.queue)
    queue_view = next((each for each in view.queues if each.name == found.queue), unknown)
    return JobView(
        found,
        view.at_ms,
        tuple(marked_reasons(found, queue_view, view)),
        tuple(attempts_of(found)),
        tuple(read_log(work, found.id)),
        system.store.follow(
            JobSteps(WorkQueueSteps(work.calls, system.settings.namespace)).progress(found.id)
        ),
        read_secrets(system.store, system.settings.namespace),
    )


def _from_lake(found: Trace, now_ms: int, place: str) -> JobView:
    last = found.past[0]
    told = (
        f"It {_ENDED_AS.get(last.event, 'was last seen as ' + last.event)} long ago: Redis has forgotten it."
    )
    source = f"This is what the lake knows ({place}): its events, without arguments and log lines."
    return JobView(found, now_ms, (told, source), tuple(attempts_of(found)), source="lake")


_ENDED_AS = {
    "succeeded": "succeeded",
    "cancelled": "was cancelled",
    "expired": "expired",
    "buried": "was buried",
    "purged": "was purged",
}


def tags_of(found: Trace) -> tuple[str, ...]:
    """From its body, or from what the events tell."""
    if found.delivery is not None:
        return tags_in(found.delivery.body)
    told: object = next((past.facts["tags"] for past in found.past if "tags" in past.facts), [])
    return tuple(map(str, told)) if isinstance(told, list) else ()


def attempts_of(found: Trace) -> list[Attempt]:
    """The deliveries that the events tell of, the first one first. Pure."""
    attempts: list[Attempt] = []
    since_ms: int | None = found.delivery.enqueued_at_ms if found.delivery else None
    for past in reversed(found.past):
        facts = past.facts
        if past.event in _BEGINNINGS:
            since_ms = past.at_ms
        elif "attempt" in facts:
            started = facts.get("started_at")
            is_exact = isinstance(started, int)
            started_at_ms = started if isinstance(started, int) else since_ms or past.at_ms
            run_ms = facts.get("run_ms")
            ended_at_ms = started_at_ms + round(run_ms) if isinstance(run_ms, int | float) else past.at_ms
            attempts.append(
                Attempt(
                    int(facts["attempt"]),
                    past.event,
                    since_ms if since_ms is not None else int(facts.get("enqueued_at", started_at_ms)),
                    started_at_ms,
                    max(started_at_ms, ended_at_ms),
                    str(facts.get("worker", "")),
                    str(facts.get("node", "")),
                    f"{facts.get('error')}: {facts.get('error_msg', '')}" if facts.get("error") else "",
                    is_exact=is_exact,
                )
            )
            since_ms = max(started_at_ms, ended_at_ms)
    return attempts
