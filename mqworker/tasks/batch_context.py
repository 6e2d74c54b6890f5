"""Context of a batch: what a function that takes many calls at once may know about each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Never

from mqworker.errors import NotSupported
from mqworker.log import Logger, get_logger
from mqworker.model.delivery import Delivery
from mqworker.model.names import TaskName
from mqworker.tasks.context import Context, State, TaskLink, local_context, trace_facts


class MemberContext(Context):
    """One delivery of a batch. A batch is stopped when all of its members are to stop, not before."""

    __slots__ = ("batch",)

    batch: BatchContext

    def request_cancel(self) -> None:
        """Note that this job is to stop; called by the worker."""
        super().request_cancel()
        self.batch.note_cancelled()


class BatchContext(Context):
    """A batch as its function sees it: that of its first member, where nothing else is said, and all members.

    `members[i]` is the `Context` of row `i`: its id, attempt, failures, fence, headers, progress and whether
    it was cancelled.
    """

    __slots__ = ("members",)

    def __init__(
        self, members: Sequence[Context], delivery: Delivery, queue: str, link: TaskLink | None = None
    ) -> None:
        """`delivery` is that of the first member."""
        super().__init__(delivery, queue, members[0].headers, link)
        self.members = members
        """One for each row, in the same order."""
        for each in members:
            if isinstance(each, MemberContext):
                each.batch = self

    @property
    def state(self) -> State:
        """What the app keeps open in this process."""
        return self.members[0].state

    @property
    def is_cancelled(self) -> bool:
        """Whether all members were asked to stop; `members[i].is_cancelled` says it of one."""
        self.is_stop_requested = self.is_stop_requested or all(each.is_cancelled for each in self.members)
        return self.is_stop_requested

    async def ais_cancelled(self) -> bool:
        """`is_cancelled` for async tasks."""
        for each in self.members:
            if not await each.ais_cancelled():
                return self.is_stop_requested
        self.is_stop_requested = True
        return True

    def is_mine(self) -> bool:
        """Whether all members are still leased to this run; `members[i].is_mine()` says it of one."""
        return all(each.is_mine() for each in self.members)

    async def ais_mine(self) -> bool:
        """`is_mine` for async tasks."""
        for each in self.members:
            if not await each.ais_mine():
                return False
        return True

    @property
    def is_known_lost(self) -> bool:
        """Whether it is known here that a member's lease was lost; nobody is asked."""
        return any(each.is_known_lost for each in self.members)

    @property
    def log(self) -> Logger:
        """A logger that names the task and how many calls run together."""
        facts = {"task": self.task, "queue": self.queue, "batch": len(self.members)}
        return get_logger(**facts, **trace_facts())

    def note_cancelled(self) -> None:
        """A member is to stop; when it was the last one, the whole batch is."""
        if all(each.is_stop_requested for each in self.members):
            self.request_cancel()

    def begin_wait(self, queue: str, message: str, now_ms: int) -> None:
        """Note that the batch waits for the result of another message; told with its first member."""
        self.members[0].begin_wait(queue, message, now_ms)

    def end_wait(self, queue: str, message: str) -> None:
        """Note that it does so no longer."""
        self.members[0].end_wait(queue, message)

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Refused: each member has its own."""
        self._refuse("arguments")

    def progress(self, done: float, total: float | None = None) -> None:
        """Refused: each member has its own."""
        del done, total
        self._refuse("progress")

    async def aprogress(self, done: float, total: float | None = None) -> None:
        """Refused: each member has its own."""
        self.progress(done, total)

    def spent(self, amount: float, *, of: str | None = None) -> None:
        """Refused: each member has its own."""
        del amount, of
        self._refuse("spent")

    async def aspent(self, amount: float, *, of: str | None = None) -> None:
        """Refused: each member has its own."""
        self.spent(amount, of=of)

    def _refuse(self, what: str) -> Never:
        raise NotSupported(
            f"{what} of a batch of {len(self.members)}: each of its calls has its own; accepted is "
            f"ctx.members[i].{what}(...)"
        )


def local_batch_context(task: TaskName, rows: int, state: State) -> BatchContext:
    """For a function that is called like one: nothing was delivered, and reports go nowhere."""
    members = [local_context(task, state) for _ in range(max(1, rows))]
    delivery = Delivery(fence=0, id=members[0].id, task=task, body=b"", enqueued_at_ms=0)
    return BatchContext(members, delivery, members[0].queue)
