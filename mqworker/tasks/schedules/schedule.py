"""`@app.schedule`: enqueues a task by a cron line or at an interval.

Only workers import the application, so they publish its schedules when they start; brokers fire them
(firing.py). What an app no longer has is gone with the next publication. Schedules that are made at run time:
schedules.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, get_args

from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.log import get_logger
from mqworker.model.assembled_call import Origin
from mqworker.model.call_template import CallTemplate
from mqworker.model.names import message_id, shown, task_name
from mqworker.model.schedule import CatchUp, Cron, Every, Timing
from mqworker.tasks.decorator import Attachment, TaskHome
from mqworker.tasks.options import Seconds, milliseconds
from mqworker.tasks.schedules.calls import ScheduleCalls
from mqworker.tasks.schedules.stored import ScheduleSpec, owner_of
from mqworker.tasks.task import Task


class Declarations(Protocol):
    """What the code of an app says."""

    @property
    def declared(self) -> dict[str, Schedule]:
        """By name."""


class ScheduleHome(TaskHome, Protocol):
    """What a schedule needs of its app."""

    @property
    def name(self) -> str:
        """Under which its schedules are published."""

    @property
    def schedules(self) -> Declarations:
        """Where they are known by name."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A call and when it comes."""

    name: str
    timing: Timing
    catch_up: CatchUp
    jitter_ms: int
    # Any: the arguments were checked against the task.
    task: Task[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def spec(self, app: str) -> ScheduleSpec:
        """The schedule as it is published."""
        name, sender = f"{app}/{self.name}", self.task.connections.sender(self.task.plan.queue)
        origin = Origin(f"{name}@", is_exact=False)
        message = self.task.message(self.args, self.kwargs, sender, origin=origin)
        call = CallTemplate(self.task.plan.queue, message)
        return ScheduleSpec(name, self.timing, self.catch_up, self.jitter_ms, call, owner=owner_of(app))


class ScheduleDecorator:
    """`@app.schedule("*/5 * * * *")` or `@app.schedule(every=30)`, on a function or above `@app.task`."""

    def __init__(self, home: Callable[[], ScheduleHome]) -> None:
        self._home = home

    def __call__(
        self,
        cron: str | None = None,
        *,
        every: Seconds | None = None,
        timezone: str = "UTC",
        jitter: Seconds = 0,
        catch_up: CatchUp = "skip",
        args: Sequence[Any] = (),  # Any: checked against the task
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> Attachment:
        """Run a task on a schedule: once per tick, however many nodes there are.

        `every` (seconds or timedelta) ticks at its multiples since 1970. `jitter` puts each tick off by up to
        so many seconds. Ticks that nobody fired in time are skipped, made up for by `"one"`, or by `"all"` of
        them (the newest hundred). `unique=True` on the task keeps a tick out while the one before it runs.
        """
        timing, catch_up = timing_of(cron, every, timezone), catch_up_of(catch_up)
        jitter_ms = milliseconds("jitter", jitter, least=0)
        home = self._home()

        def schedule(task: Task[..., Any]) -> None:
            task.definition.binding.check(args, kwargs or {})
            task.connections.refuse_other_models(task.plan.queue, f"the schedule of {task.name}")
            chosen = task_name(name or task.name)
            message_id(f"{home.name}/{chosen}@{0:014}")  # what the messages of its ticks are called
            _add(home, Schedule(chosen, timing, catch_up, jitter_ms, task, tuple(args), kwargs or {}))

        return Attachment(home, schedule)


def publish_schedules(home: ScheduleHome) -> int:
    """Tell the brokers of all schedules of an app, in place of those its code had before; how many.

    What stays as it was goes on from its last tick; what is new, or came at other times before, begins now.
    Schedules that were made as data stay as they are; one of the same name keeps the app's out.
    """
    store, calls = home.connections.store, ScheduleCalls(home.connections.namespace)
    specs = [schedule.spec(home.name) for schedule in home.schedules.declared.values()]
    # Once, without patience: the caller has other things to do while Redis is away.
    (refused,) = store.attempt(store.begin([calls.store(owner_of(home.name), specs)]))
    for name, owner in refused:
        get_logger(part="schedules").error(
            "schedule_refused",
            schedule=name,
            owner=owner,
            problem="a schedule of this name was made as data, and is fired as it is stored there",
            to_do=f"rename one of them, or end the other with `mqworker schedule delete {name}`",
        )
    return len(specs) - len(refused)


def timing_of(cron: str | None, every: Seconds | None, timezone: str) -> Timing:
    """When a schedule comes; raises `InvalidArgument` that says what is accepted."""
    if (cron is None) == (every is None):
        raise InvalidArgument("a schedule is a cron line or every=...; accepted is one of them")
    return Every(milliseconds("every", every)) if cron is None else Cron(cron, timezone)


def catch_up_of(value: CatchUp) -> CatchUp:
    """What becomes of ticks that were missed."""
    if value not in get_args(CatchUp):
        raise InvalidArgument(f'catch_up is {shown(value)}; accepted are "skip", "one" and "all"')
    return value


def _add(home: ScheduleHome, schedule: Schedule) -> None:
    declared = home.schedules.declared
    known = declared.get(schedule.name)
    if known is not None and known.task.name != schedule.task.name:
        raise ConfigurationError(
            f"two schedules are named {schedule.name}; give one of them another name=..."
        )
    declared[schedule.name] = schedule
