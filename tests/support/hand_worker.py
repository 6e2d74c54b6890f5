"""A worker by hand: claims, runs and settles when a test says so, in the test's own process."""

from __future__ import annotations

from mqworker import App
from mqworker.model.clock import Clock, SystemClock
from mqworker.model.settlement import Settlement
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.running.task_link import StoreTaskLink

LEASE_MS = 30_000


class HandWorker:
    """Runs what lies in the queues of an app."""

    def __init__(self, app: App, *, clock: Clock | None = None) -> None:
        self.app = app
        self.runner = TaskRunner(
            app.registry,
            worker="hand",
            node="test",
            clock=clock or SystemClock(),
            max_message_bytes=app.settings.max_message_bytes,
            hooks=app.hooks,
            payloads=app.connections.payloads,
            link=StoreTaskLink(app.work_queue, clock or SystemClock(), app.connections.async_queue),
        )

    def run_all(self, queue: str = "default") -> list[Settlement]:
        """Run everything that is ready, one after the other; what became of it."""
        settlements: list[Settlement] = []
        while delivered := self.app.work_queue(queue).claim(1, lease_ms=LEASE_MS):
            settlement = self.runner.run(delivered[0], queue)
            lost = self.app.work_queue(queue).settle(settlement)
            assert lost == []
            settlements.append(settlement)
        return settlements
