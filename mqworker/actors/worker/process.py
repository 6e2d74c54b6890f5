"""A worker's process: imports the application, builds the worker and runs it to its end."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from mqworker.actors.actor import ActorLoop
from mqworker.actors.child_start import ChildStart
from mqworker.actors.early_start.take import EarlyStart
from mqworker.actors.early_start.tickets import Tickets
from mqworker.actors.garbage import collect_seldom_in_worker
from mqworker.actors.mail import (
    WorkerReady,
)
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.run_slot import RunSlots
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options
from mqworker.actors.worker.lifetime import Announcement, WorkerLimits
from mqworker.actors.worker.report import Report
from mqworker.actors.worker.worker import Worker
from mqworker.errors import TaskTimeout
from mqworker.log import add_processors, capture_standard_logging, get_logger
from mqworker.model.batch import Batch
from mqworker.model.clock import SystemClock
from mqworker.model.names import ConsumerName, queue_name
from mqworker.model.settlement import Settlement
from mqworker.model.trace_context import Sampling
from mqworker.queues.catalogue import as_plain
from mqworker.queues.work.calls import WorkQueueCalls
from mqworker.settings import Settings
from mqworker.tasks.app import App, QueueDeclaration
from mqworker.tasks.context import name_task
from mqworker.tasks.default_app import default_app
from mqworker.tasks.events.subscription import register_subscriptions
from mqworker.tasks.foreign_queues import publish_models
from mqworker.tasks.loading import load_app
from mqworker.tasks.offload.removal import BlobRemoval
from mqworker.tasks.options import AS_SET
from mqworker.tasks.published_tasks import publish_tasks
from mqworker.tasks.running.alarm import alarm
from mqworker.tasks.running.job_log import JobLogs
from mqworker.tasks.running.resources import WorkerResources
from mqworker.tasks.running.run import TaskRunner
from mqworker.tasks.running.task_link import StoreTaskLink
from mqworker.tasks.schedules.schedule import publish_schedules
from mqworker.tasks.tracing.runs import RunTracer
from mqworker.tasks.tracing.traced_runner import TracedTaskRunner


def main(control: Mailbox, start: ChildStart) -> int:
    """A worker's process: the only one that imports the application."""
    settings, clock = replace(start.settings, redis_url=start.redis_url), SystemClock()
    add_processors(name_task)
    capture_standard_logging(worker=start.name)
    app = default_app() if start.app is None else load_app(start.app, Path.cwd())
    app.adopt(settings)
    if settings.job_log_lines:
        logs = JobLogs(lambda queue: app.connections.beside(queue_name(queue)), clock, settings.job_log_lines)
        add_processors(logs.watch)
    index, quarantine = int(start.name.partition(":")[2]), quarantine_of(start)
    if index == 0 and app.connections.outbox is not None and settings.outbox_url is None:
        logger_of(start).warning(
            "outbox_not_moved",
            problem="the app has an outbox, and this node does not move its rows",
            to_do="set MQWORKER_OUTBOX_URL here, or on another node",
        )
    slots = RunSlots(start.slots_path)
    resources = open_resources(app, settings.lifespan_timeout_s)
    tracer = None if settings.otel == "off" else open_tracer(app, start, slots, index)
    make_runner = TaskRunner if tracer is None else partial(TracedTaskRunner, tracer)
    worker = Worker(
        start.name,
        index,
        make_runner(
            app.registry,
            worker=start.name,
            node=start.node,
            clock=clock,
            max_message_bytes=settings.max_message_bytes,
            hooks=app.hooks,
            logs_successes=settings.log_successes == "yes",
            payloads=app.connections.payloads,
            other_models=frozenset(app.connections.models),
            resources=resources,
            link=StoreTaskLink(
                lambda queue: app.connections.beside(queue_name(queue)),
                clock,
                app.connections.async_queue,
                consumer=ConsumerName(start.consumer),
                registry=app.registry,
                other_models=frozenset(app.connections.models),
                payloads=app.connections.payloads,
                state=app.state,
                acks_starts=True,
            ),
        ),
        readiness(app, settings),
        slots=slots,
        early_start=EarlyStart(
            index, Tickets(start.slots_path), lambda: open_store(start), logger_of(start), quarantine
        ),
        report=Report(
            lambda queue: WorkQueueCalls(queue, queue_options(settings)),
            {task.name: app.registry.result_ttl_ms(task.name) for task in app.registry},
            frozenset(app.connections.models),
            None if tracer is None else tracer.take,
            _removal_of(app),
        ),
        limits=WorkerLimits(settings.max_tasks, settings.max_memory_bytes, _memory_bytes),
        announcements=(
            Announcement("schedules", partial(publish_schedules, app), logger_of(start)),
            Announcement("tasks", partial(publish_tasks, app), logger_of(start)),
            Announcement("models", partial(publish_models, app), logger_of(start)),
            Announcement("subscriptions", partial(register_subscriptions, app), logger_of(start)),
        ),
        clock=clock,
        log=logger_of(start),
        other_models=frozenset(app.connections.models),
    )
    collect_seldom_in_worker()
    loop = ActorLoop(worker, control, clock, logger_of(start), quarantine)
    worker.share_mail(loop)
    worker.interrupt_by_signal()
    resources.on_lost = worker.leave
    try:
        loop.run()
    finally:
        close_resources(app, resources, settings.lifespan_timeout_s)
    worker.close()
    return 0


def open_resources(app: App, timeout_s: float) -> WorkerResources:
    """What the application opens at the start of a worker; a start that hangs is given up."""
    for task in app.registry:
        for dependency in task.dependencies.values():
            app.injection.plan_of(dependency)  # what cannot be provided is said before anything runs
    resources = WorkerResources(app.injection)
    if app.injection.lifespans:
        with _limited(timeout_s, "the lifespans of the app did not start"):
            resources.start(app)
    app.hooks.run(app.hooks.worker_starting)
    return resources


def close_resources(app: App, resources: WorkerResources, timeout_s: float) -> None:
    """The end of a worker: one that hangs here would never be replaced."""
    app.hooks.run(app.hooks.worker_stopping)
    try:
        with _limited(timeout_s, "the lifespans and providers of the app did not end"):
            resources.close()
    except TaskTimeout as error:
        get_logger(part="resources").error("resources_not_closed", problem=str(error))


@contextmanager
def _limited(timeout_s: float, what: str) -> Iterator[None]:
    # An alarm raises in code of Python. For code that does not come back to it there is a thread of C, which
    # shows where everybody stands and ends the process.
    faulthandler.dump_traceback_later(timeout_s + 5, exit=True)
    try:
        with alarm(round(timeout_s * 1000), what):
            yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def open_tracer(app: App, start: ChildStart, slots: RunSlots, index: int) -> RunTracer:
    """Trace what this worker runs and what its tasks send, and collect what the application records."""
    from mqworker.tasks.tracing.application_spans import activation, collect_application_spans  # noqa: PLC0415
    from mqworker.tasks.tracing.sending import SendTracer  # noqa: PLC0415 - only where tracing is on

    settings = start.settings
    tracer = RunTracer(
        Sampling(settings.otel_share),
        "parent" if settings.otel == "parent" else "link",
        worker=start.name,
        node=start.node,
        activate=activation(),
        note_start=slots.run_log(index).note,
    )
    collect_application_spans(tracer.note_application_span)
    app.connections.tracer = SendTracer(tracer.note_sent, creates=settings.otel_create == "yes")
    return tracer


def check_import(control: Mailbox, start: ChildStart) -> int:
    """Import the application as a worker does, and end: whether workers could be replaced now."""
    del control  # nothing is said and nothing heard
    if start.app is not None:
        load_app(start.app, Path.cwd())
    return 0


def readiness(app: App, settings: Settings) -> WorkerReady:
    """What the dispatcher must know about an app."""
    queues = {task.options.queue for task in app.registry} | set(app.queues)
    return WorkerReady(
        tasks={
            task.name: {
                "queue": task.options.queue,
                "async": task.is_async,
                "once": task.options.delivery == "at_most_once",
                "retries": task.options.retry.max,
                "max_losses": settings.max_losses
                if task.options.max_losses == AS_SET
                else task.options.max_losses,
                "limited": task.options.is_limited or task.options.queue in app.connections.running_by_queue,
                "version": task.binding.version,
                **_batch_facts(task.options.batch),
            }
            for task in app.registry
        },
        queues={name: _queue_facts(app.queues.get(name)) for name in sorted(queues)},
        threads=settings.threads,
        concurrency=settings.concurrency,
        pid=os.getpid(),
    )


def _batch_facts(batch: Batch | None) -> dict[str, Any]:
    return {} if batch is None else {"batch": [batch.size, batch.wait_ms, batch.by is not None]}


def _removal_of(app: App) -> Callable[[str, Settlement], object] | None:
    """Removes what a message kept elsewhere, once it is done."""
    payloads = app.connections.payloads
    if payloads is None or payloads.place is None:
        return None
    return BlobRemoval(payloads.place, lambda queue: app.connections.beside(queue_name(queue))).note


def _queue_facts(declared: QueueDeclaration | None) -> dict[str, Any]:
    if declared is None:
        return {"weight": 1}
    model = {} if declared.model is None else {"model": as_plain(declared.model)}
    return {"weight": declared.weight, **model}


def _memory_bytes() -> int:
    import psutil  # noqa: PLC0415 - only where a limit is set: it costs two megabytes

    return int(psutil.Process().memory_info().rss)
