"""Hooks: an application's own code around enqueueing and running, for tracing, metrics and alerts.

`before_enqueue` runs in the producer: it may add headers, and an error in it stops the call. The others run
in the worker: an error in them is logged and changes nothing, for the work itself is done or failed already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from mqworker.log import get_logger
from mqworker.model.names import MessageId, QueueName, TaskName
from mqworker.tasks.context import Context

Result: TypeAlias = Any
"""Any: what the task returned."""
Argument: TypeAlias = Any
"""Any: what the caller gave."""


@dataclass(slots=True)
class OutgoingCall:
    """A call on its way out. Hooks and middleware may add to the headers."""

    task: TaskName
    queue: QueueName
    headers: dict[str, str] = field(default_factory=dict)
    args: Sequence[Argument] = ()
    kwargs: Mapping[str, Argument] = field(default_factory=dict)
    id: MessageId | None = None
    """Of the job; known once it is stored."""


BeforeEnqueue = Callable[[OutgoingCall], None]
AroundEnqueue = Callable[[OutgoingCall], Iterator[None]]
OnStart = Callable[[Context], None]
OnSuccess = Callable[[Context, Result], None]
OnFailure = Callable[[Context, BaseException], None]
OnRetry = Callable[[Context, BaseException, int], None]
OnWorker = Callable[[], None]
HookT = TypeVar("HookT", bound=Callable[..., None])


class Hooks:
    """The hooks of an app, called in the order of registration. Each method also works as a decorator."""

    def __init__(self) -> None:
        self.enqueueing: list[BeforeEnqueue] = []
        self.wrapping: list[AroundEnqueue] = []
        self.starting: list[OnStart] = []
        self.succeeding: list[OnSuccess] = []
        self.failing: list[OnFailure] = []
        self.retrying: list[OnRetry] = []
        self.crashing: list[OnFailure] = []
        self.worker_starting: list[OnWorker] = []
        self.worker_stopping: list[OnWorker] = []
        self._log = get_logger(part="hooks")

    def before_enqueue(self, hook: BeforeEnqueue) -> BeforeEnqueue:
        """Call it with each `OutgoingCall`, in the producer."""
        return _added(self.enqueueing, hook)

    @contextmanager
    def sending(self, call: OutgoingCall) -> Iterator[OutgoingCall]:
        """Around the storing of one call: the middleware, the first one outermost."""
        with ExitStack() as around:
            for middleware in self.wrapping:
                around.enter_context(contextmanager(middleware)(call))
            yield call

    def on_start(self, hook: OnStart) -> OnStart:
        """Call it before a task runs."""
        return _added(self.starting, hook)

    def on_success(self, hook: OnSuccess) -> OnSuccess:
        """Call it with what the task returned."""
        return _added(self.succeeding, hook)

    def on_failure(self, hook: OnFailure) -> OnFailure:
        """Call it with the error when a message is given up; `TaskFailed` where its worker had died."""
        return _added(self.failing, hook)

    def on_retry(self, hook: OnRetry) -> OnRetry:
        """Call it with the error and the milliseconds until the next try."""
        return _added(self.retrying, hook)

    def on_crash(self, hook: OnFailure) -> OnFailure:
        """Call it with a `TaskFailed` when a worker died over a message that is run again, in another one."""
        return _added(self.crashing, hook)

    def on_worker_start(self, hook: OnWorker) -> OnWorker:
        """Call it in each worker's process before its first task, behind the lifespans."""
        return _added(self.worker_starting, hook)

    def on_worker_stop(self, hook: OnWorker) -> OnWorker:
        """Call it before a worker ends as it should: the last chance to send what is left."""
        return _added(self.worker_stopping, hook)

    # Any: each list holds hooks of one signature, given by its caller.
    def run(self, hooks: list[Any], *arguments: object) -> None:
        """Call hooks of the worker's side; whatever they raise is logged."""
        for hook in hooks:
            try:
                hook(*arguments)
            except Exception:  # noqa: BLE001 - foreign code beside the task must not change its outcome
                self._log.exception("hook_failed", hook=getattr(hook, "__qualname__", repr(hook)))


def _added(hooks: list[HookT], hook: HookT) -> HookT:
    hooks.append(hook)
    return hook
