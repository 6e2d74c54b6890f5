"""Rolling restart: all workers are replaced, one after another, each after it has finished what it had.

No worker is stopped before an import check has shown that the code on disk imports. If not, the workers
stay, the node says why, and tries again when a file of the application changes, and now and then.

After HUP a worker may finish its task, however long that takes: a deploy must not end a task of an hour. A
developer who reloads does not want to wait: then the time is limited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mqworker.actors.mail import KeepWorkers, RetireWorker
from mqworker.log import Logger
from mqworker.supervisor.child_care import ChildCare
from mqworker.supervisor.child_plan import Role
from mqworker.supervisor.children import ChildRecord, Children, State
from mqworker.supervisor.import_check import ImportCheck
from mqworker.supervisor.restart_policy import Fault
from mqworker.supervisor.source_watch import SourceWatch

# A new dispatcher does not know that a worker is to retire.
_SAY_AGAIN_MS = 1_000
# For what no file below the application tells: a package that was installed, a setting that was mended.
_TRY_AGAIN_MS = 30_000


class RollingRestart:
    """At most one restart is under way; a second request begins it anew."""

    def __init__(
        self,
        children: Children,
        care: ChildCare,
        import_check: ImportCheck,
        watch_source: Callable[[], SourceWatch],
        patience_ms: int | None,
        *,
        log: Logger,
    ) -> None:
        """`watch_source` looks at the files of the application from now on."""
        self.problem: str | None = None
        """Why the workers could not be replaced when that was asked for; None when they could."""
        self._children = children
        self._care = care
        self._import_check = import_check
        self._watch_source = watch_source
        self._patience_ms = patience_ms
        self._log = log
        self._source: SourceWatch | None = None
        self._source_of_parked: SourceWatch | None = None
        self._told = (0, False)
        self._try_again_ms = 0
        self._waiting: deque[ChildRecord] = deque()
        self._leaving: ChildRecord | None = None
        self._generation = 0
        self._began_at_ms = 0
        self._said_at_ms = 0

    def begin(self, now_ms: int) -> None:
        """Replace all workers that run now, once it is known that others could take their place."""
        workers = self._children.of_role(Role.WORKER)
        check_import = workers[0].plan.check_import if workers else None
        if check_import is None:
            self._replace_all(None, now_ms)
            return
        # Looked at before the import is: a file that is mended meanwhile has changed since.
        self._source = self._watch_source()
        self._import_check.begin(check_import, now_ms, self._replace_all)

    def _replace_all(self, problem: str | None, now_ms: int) -> None:
        if problem is not None:
            self._try_again_ms = now_ms + _TRY_AGAIN_MS
            if problem != self.problem:
                self._log.error("workers_not_replaced", reason=problem)
            self.problem = problem
            return
        self.problem, self._source = None, None
        self._waiting = deque(self._children.of_role(Role.WORKER))
        for record in self._waiting:
            if record.state is State.PARKED:
                record.state, record.restart_at_ms = State.WAITING, now_ms
            elif record.state is State.STARTING:
                # It may have imported half of what was there before.
                self._care.kill(record, "restarted", Fault.SPARED)
        self._next(now_ms)

    def _look_for_a_change(self, now_ms: int) -> None:
        """While the code on disk is known to be broken; then alone a walk through its files is worth it."""
        if self.problem is None or self._source is None:
            return
        if self._source.has_changed(now_ms) or now_ms >= self._try_again_ms:
            self._try_again_ms = now_ms + _TRY_AGAIN_MS
            self.begin(now_ms)

    def _try_parked(self, parked: list[ChildRecord], now_ms: int) -> None:
        """A worker was lost and its successor does not start: it is tried when a file changes, too."""
        if not parked:
            self._source_of_parked = None
        elif self._source_of_parked is None:
            self._source_of_parked = self._watch_source()
        elif self._source_of_parked.has_changed(now_ms):
            for record in parked:
                record.restart_at_ms = now_ms

    def _keep_workers(self, *, are_kept: bool) -> None:
        """Say it once to each dispatcher; the first thing it assumes is that all is well."""
        dispatcher = self._children.the(Role.DISPATCHER)
        if dispatcher is None or dispatcher.state is not State.LIVE:
            return
        told = (dispatcher.generation, are_kept)
        if told != self._told and (are_kept or self._told[1]):
            self._care.tell(dispatcher, KeepWorkers(are_kept))
        self._told = told

    def turn(self, now_ms: int) -> None:
        """Replace the next worker once the one before is back."""
        self._import_check.turn(now_ms)
        self._look_for_a_change(now_ms)
        parked = [each for each in self._children.of_role(Role.WORKER) if each.state is State.PARKED]
        self._try_parked(parked, now_ms)
        self._keep_workers(are_kept=self.problem is not None or bool(parked))
        record = self._leaving
        if record is None:
            return
        if record.generation != self._generation or record.state is State.PARKED:
            if record.state is not State.STARTING:
                self._next(now_ms)
            return
        if self._patience_ms is not None and now_ms - self._began_at_ms >= self._patience_ms:
            self._care.kill(record, "restarted before its task had ended", Fault.SPARED)
        elif now_ms - self._said_at_ms >= _SAY_AGAIN_MS:
            self._ask(record, now_ms)

    def _next(self, now_ms: int) -> None:
        self._leaving = None
        while self._waiting and self._leaving is None:
            record = self._waiting.popleft()
            if record.state is State.LIVE and record.kill_reason is None:
                self._leaving, self._generation = record, record.generation
                self._began_at_ms = now_ms
                self._ask(record, now_ms)

    def _ask(self, record: ChildRecord, now_ms: int) -> None:
        self._said_at_ms = now_ms
        self._care.tell(self._children.the(Role.DISPATCHER), RetireWorker(record.name))
