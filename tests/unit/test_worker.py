"""The worker's actor, without a process: what it leaves alone."""

from pathlib import Path

from mqworker import App
from mqworker.actors.run_slot import RunSlots
from mqworker.actors.worker import Worker, readiness
from mqworker.actors.worker_limits import WorkerLimits
from mqworker.actors.worker_report import Report
from mqworker.log import get_logger
from mqworker.model.clock import ManualClock
from mqworker.queues.work_calls import WorkQueueCalls, WorkQueueOptions
from mqworker.settings import Settings
from mqworker.tasks.run import TaskRunner


def test_a_new_worker_leaves_the_evidence_of_the_one_before_it(tmp_path: Path) -> None:
    slots, clock, app = RunSlots(str(tmp_path / "slots")), ManualClock(), App("shop")
    slots.begin(0, "default", 7, 0)  # and died over it
    worker = Worker(
        "worker:0",
        0,
        TaskRunner(app.registry, worker="worker:0", node="n", clock=clock),
        readiness(app, Settings()),
        slots=slots,
        report=Report(lambda queue: WorkQueueCalls(queue, WorkQueueOptions()), 0, frozenset()),
        limits=WorkerLimits(None, None, lambda: 0),
        announcements=(),
        clock=clock,
        log=get_logger(),
    )

    list(worker.turn(0))
    running = slots.running(0)
    worker.close()

    assert running is not None
    assert running.fence == 7
