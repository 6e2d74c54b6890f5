"""`app.schedules`: schedules as data, made, changed and ended at run time; and those that the code has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from mqworker.errors import InvalidArgument
from mqworker.model.assembled_call import Origin
from mqworker.model.call_template import CallTemplate
from mqworker.model.names import QueueName, shown, whole_number
from mqworker.model.schedule import CatchUp
from mqworker.tasks.connections import Connections
from mqworker.tasks.job import Job
from mqworker.tasks.options import Seconds, milliseconds
from mqworker.tasks.schedules.book import MOST_IN_A_PAGE, Backfill, ScheduleBook, ScheduleState, no_schedule
from mqworker.tasks.schedules.history import Firing
from mqworker.tasks.schedules.schedule import Schedule, catch_up_of, timing_of
from mqworker.tasks.schedules.stored import ScheduleSpec
from mqworker.tasks.signature import Signature

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=/-]{0,99}", re.ASCII)


def schedule_name(value: object) -> str:
    """The name of a schedule that is data."""
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise InvalidArgument(
        f"name is {shown(value)}; accepted are 1 to 100 characters of A-Z a-z 0-9 _ . + = / -, beginning "
        "with a letter, digit or _, such as acme/nightly"
    )


class Schedules:
    """`app.schedules.put("acme/nightly", report.s("acme"), cron="0 3 * * *", timezone="Europe/Berlin")`."""

    def __init__(self, connections: Connections) -> None:
        self.declared: dict[str, Schedule] = {}
        """What the code says by `@app.schedule`, by name; workers publish it when they start."""
        self._connections = connections

    def put(
        self,
        name: str,
        call: Signature[Any],  # Any: whatever the task returns, nobody waits for it
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        timezone: str = "UTC",
        jitter: Seconds = 0,
        catch_up: CatchUp = "skip",
    ) -> ScheduleState:
        """Make a schedule, or change the one of this name; it stays until it is deleted.

        The options are those of `@app.schedule`. What comes at the same times as before goes on from its last
        tick, whatever else is changed; otherwise it begins now. A pause stays. Names that the code of an app
        has are refused, and deploying an app leaves what is put here alone.
        """
        chosen = schedule_name(name)
        timing, jitter_ms = timing_of(cron, every, timezone), milliseconds("jitter", jitter, least=0)
        template = self._template(chosen, call)
        spec = ScheduleSpec(chosen, timing, catch_up_of(catch_up), jitter_ms, template)
        self._connections.sender(template.queue).register()
        self._book.put(spec)
        return self._known(chosen)

    async def aput(
        self,
        name: str,
        call: Signature[Any],  # Any: as above
        *,
        cron: str | None = None,
        every: Seconds | None = None,
        timezone: str = "UTC",
        jitter: Seconds = 0,
        catch_up: CatchUp = "skip",
    ) -> ScheduleState:
        """`put` for asyncio."""
        return await asyncio.to_thread(
            lambda: self.put(
                name, call, cron=cron, every=every, timezone=timezone, jitter=jitter, catch_up=catch_up
            )
        )

    def get(self, name: str) -> ScheduleState | None:
        """The schedule of this name, of data or of code; None when there is none."""
        return self._book.get(name)[1]

    async def aget(self, name: str) -> ScheduleState | None:
        """`get` for asyncio."""
        return await asyncio.to_thread(self.get, name)

    def list(
        self, prefix: str = "", *, after: str = "", limit: int = MOST_IN_A_PAGE
    ) -> Sequence[ScheduleState]:
        """Those whose names begin so, in the order of names, behind `after`: the last of the page before."""
        whole_number("limit", limit, least=1, most=MOST_IN_A_PAGE)
        return [*self._book.by_name(prefix, after, limit).states]

    async def alist(
        self, prefix: str = "", *, after: str = "", limit: int = MOST_IN_A_PAGE
    ) -> Sequence[ScheduleState]:
        """`list` for asyncio."""
        return await asyncio.to_thread(lambda: self.list(prefix, after=after, limit=limit))

    def pause(self, name: str) -> bool:
        """Fire nothing that comes due from now on; False when it is paused already."""
        return self._book.pause(name)

    async def apause(self, name: str) -> bool:
        """`pause` for asyncio."""
        return await asyncio.to_thread(self.pause, name)

    def resume(self, name: str) -> bool:
        """Fire again, from the next tick on: the pause is not caught up. False when it is not paused."""
        return self._book.resume(name)

    async def aresume(self, name: str) -> bool:
        """`resume` for asyncio."""
        return await asyncio.to_thread(self.resume, name)

    def delete(self, name: str) -> bool:
        """End it and forget its history; False when there is none. Calls that are in line already run."""
        return self._book.delete(name)

    async def adelete(self, name: str) -> bool:
        """`delete` for asyncio."""
        return await asyncio.to_thread(self.delete, name)

    def run_now(self, name: str) -> Job[Any]:  # Any: only the task knows what it returns
        """Make its call once, beside its ticks, also in a pause. The job of an equal call where one waits."""
        state = self._known(name)
        message, is_new = self._book.run_now(state.spec)
        return Job(message, self._connections.sender(QueueName(state.queue)), is_new=is_new)

    async def arun_now(self, name: str) -> Job[Any]:  # Any: as above
        """`run_now` for asyncio."""
        return await asyncio.to_thread(self.run_now, name)

    def backfill(self, name: str, start: datetime, end: datetime) -> Backfill:
        """Make its call for each tick from `start` up to before `end`, whether it was fired then or not.

        Both have passed and have time zones. Repeated it stores no call twice while ids are remembered
        (`dedup_window_s`), so one that was interrupted is simply asked for again.
        """
        from_ms, to_ms = _epoch_ms("start", start), _epoch_ms("end", end)
        return self._book.backfill(self._known(name).spec, from_ms, to_ms)

    async def abackfill(self, name: str, start: datetime, end: datetime) -> Backfill:
        """`backfill` for asyncio."""
        return await asyncio.to_thread(self.backfill, name, start, end)

    def history(self, name: str) -> Sequence[Firing]:
        """What was fired last, the newest first: twenty at the most."""
        return self._book.history(name)

    async def ahistory(self, name: str) -> Sequence[Firing]:
        """`history` for asyncio."""
        return await asyncio.to_thread(self.history, name)

    @property
    def _book(self) -> ScheduleBook:
        connections = self._connections
        return ScheduleBook(connections.store, connections.namespace, self._open_queue)

    @property
    def _open_queue(self) -> Callable[[str], Any]:  # Any: a work queue
        return lambda queue: self._connections.sender(QueueName(queue)).work

    def _known(self, name: str) -> ScheduleState:
        state = self._book.get(name)[1]
        if state is None:
            raise no_schedule(name)
        return state

    def _template(self, name: str, call: Signature[Any]) -> CallTemplate:
        if not isinstance(call, Signature):
            raise InvalidArgument(f"call is {shown(call)}; accepted is a call as a value, such as task.s(1)")
        task, plan = call.call, call.plan
        task.connections.refuse_other_models(plan.queue, f"schedule {name}")
        if plan.id is not None:
            raise InvalidArgument(
                f"the call of schedule {name} has an id; accepted is one without: ticks have their own"
            )
        origin = Origin(f"{name}@", is_exact=False)
        message = task.message(call.args, call.kwargs, task.connections.sender(plan.queue), origin=origin)
        return CallTemplate(plan.queue, message)


def _epoch_ms(argument: str, instant: object) -> int:
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise InvalidArgument(f"{argument} is {shown(instant)}; accepted is a datetime with a time zone")
    return round(instant.timestamp() * 1000)
