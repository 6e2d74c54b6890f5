"""What is found in the source of a Celery project: each with its place, what it is, and what it is here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from mqworker.tasks.celery_names import OPTIONS

_NOT_NEEDED = "nothing: "


class Verdict(StrEnum):
    """Whether it carries over."""

    SAME = "same"
    """The same name, or nothing to write."""
    MAPS = "maps"
    """Another name for the same thing."""
    NOT = "not"
    """There is no such thing: to be decided by somebody."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing of Celery in one line of source."""

    path: str
    line: int
    name: str
    verdict: Verdict
    ours: str


_SAME_OPTIONS: Mapping[str, str] = {
    "name": "name, the same: messages name tasks by it",
    "queue": "queue, the same",
    "priority": "priority, of which 9 is the most urgent; in a Celery queue there is none",
}
_NO_OPTIONS = frozenset({"base", "shadow_name", "serializer", "compression", "resultrepr_maxsize", "typing"})

SETTINGS: Mapping[str, tuple[Verdict, str]] = {
    "broker_url": (Verdict.MAPS, "MQWORKER_REDIS_URL, with the same server and database"),
    "result_backend": (
        Verdict.MAPS,
        "CeleryQueue(results=True); with result_db=... where only the database differs",
    ),
    "broker_transport_options": (
        Verdict.MAPS,
        "CeleryQueue(prefix=..., priority_steps=...); visibility_timeout is not needed: leases are renewed",
    ),
    "result_backend_transport_options": (Verdict.MAPS, "CeleryQueue(result_prefix=...)"),
    "result_expires": (Verdict.MAPS, "CeleryQueue(result_expires=...), later the setting result_ttl_s"),
    "task_default_queue": (Verdict.MAPS, 'app.queue(NAME, model=CeleryQueue()) and @app.task(queue="NAME")'),
    "task_queues": (Verdict.MAPS, "app.queue(NAME, model=CeleryQueue()) for each of them"),
    "task_routes": (Verdict.MAPS, "@app.task(queue=...); while producers are Celery's, they go on using it"),
    "task_time_limit": (Verdict.MAPS, "@app.task(hard_timeout=...)"),
    "task_soft_time_limit": (Verdict.MAPS, "@app.task(timeout=...)"),
    "task_ignore_result": (Verdict.MAPS, "@app.task(result_ttl=0)"),
    "task_default_rate_limit": (Verdict.MAPS, "@app.task(rate=...), which holds over all nodes"),
    "task_always_eager": (Verdict.MAPS, "the bench of mqworker.testing, which runs the real scripts"),
    "task_acks_late": (Verdict.SAME, "not needed: a task is acknowledged after it ran"),
    "task_reject_on_worker_lost": (Verdict.SAME, "not needed: what a dead worker held runs again"),
    "task_track_started": (Verdict.SAME, "not needed: job.status() tells what runs"),
    "worker_prefetch_multiplier": (Verdict.SAME, "not needed: batches follow the run time of tasks"),
    "worker_concurrency": (Verdict.MAPS, "mqworker run --workers N"),
    "worker_max_tasks_per_child": (Verdict.MAPS, "mqworker run --max-tasks N"),
    "worker_max_memory_per_child": (Verdict.MAPS, "mqworker run --max-memory-bytes N"),
    "beat_schedule": (Verdict.MAPS, '@app.schedule("0 3 * * *") at each task; no beat process'),
    "timezone": (Verdict.MAPS, "@app.schedule(..., tz=...)"),
    "accept_content": (Verdict.SAME, "not needed: JSON and msgpack are accepted, never pickle"),
    "imports": (Verdict.MAPS, "imports where the app is made"),
    "include": (Verdict.MAPS, "imports where the app is made"),
    "enable_utc": (Verdict.SAME, "not needed: moments have a time zone"),
    "result_serializer": (Verdict.SAME, "not needed: results are written as JSON for Celery"),
    "task_compression": (Verdict.SAME, "gzip and bzip2 are read"),
    "task_send_sent_event": (Verdict.SAME, "not needed: events are always written"),
    "worker_send_task_events": (Verdict.SAME, "not needed: events are always written"),
}

CALLS: Mapping[str, tuple[Verdict, str]] = {
    "delay": (Verdict.SAME, "delay, the same"),
    "apply_async": (
        Verdict.SAME,
        "apply_async with countdown, eta, expires, priority, queue, task_id, headers",
    ),
    "send_task": (Verdict.SAME, "app.send_task(...), or app.send(name, ...)"),
    "retry": (Verdict.MAPS, "raise Retry(in_=seconds)"),
    "update_state": (Verdict.MAPS, "ctx.progress(done, total)"),
    "AsyncResult": (Verdict.MAPS, "app.job(id, queue)"),
    "revoke": (Verdict.MAPS, "job.cancel() in a work queue; in a Celery queue there is none"),
    "signature": (Verdict.MAPS, "task.s(...), or app.named(name).s(...)"),
    "subtask": (Verdict.MAPS, "task.s(...)"),
    "chord": (
        Verdict.NOT,
        "mqworker.chord, started here; those in flight are for Celery's workers to finish",
    ),
    "chain": (Verdict.SAME, "chain; those that Celery's producers start are carried on"),
    "group": (Verdict.SAME, "group; those that Celery's producers start are carried on"),
    "chunks": (Verdict.MAPS, "task.enqueue_many([...])"),
    "starmap": (Verdict.MAPS, "task.enqueue_many([...])"),
    "add_periodic_task": (Verdict.MAPS, '@app.schedule("*/5 * * * *")'),
    "autodiscover_tasks": (
        Verdict.MAPS,
        "imports where the app is made; mqworker.contrib.django finds tasks.py",
    ),
    "crontab": (Verdict.MAPS, '@app.schedule("0 3 * * *")'),
    "replace": (Verdict.NOT, "enqueue the other task, and return its id"),
}

SIGNALS: Mapping[str, tuple[Verdict, str]] = {
    "before_task_publish": (Verdict.MAPS, "@app.enqueue_middleware"),
    "after_task_publish": (Verdict.MAPS, "@app.enqueue_middleware"),
    "task_prerun": (Verdict.MAPS, "@app.middleware"),
    "task_postrun": (Verdict.MAPS, "@app.middleware"),
    "task_success": (Verdict.MAPS, "hooks of the app"),
    "task_failure": (Verdict.MAPS, "hooks of the app"),
    "task_retry": (Verdict.MAPS, "hooks of the app"),
    "worker_process_init": (Verdict.MAPS, "@app.lifespan"),
    "worker_process_shutdown": (Verdict.MAPS, "@app.lifespan"),
    "worker_ready": (Verdict.NOT, "mqworker health --ready, from outside"),
    "celeryd_init": (Verdict.NOT, "the module of the app, which each worker imports"),
    "setup_logging": (Verdict.MAPS, "the settings log_level and log_format"),
}


def option_finding(path: str, line: int, name: str) -> Finding:
    """One option of a task."""
    if name in _SAME_OPTIONS:
        return Finding(path, line, name, Verdict.SAME, _SAME_OPTIONS[name])
    ours = OPTIONS.get(name)
    if ours is None:
        return Finding(path, line, name, Verdict.NOT, "is not known here: drop it, or look into the guide")
    if ours.startswith(_NOT_NEEDED):
        verdict = Verdict.NOT if name in _NO_OPTIONS else Verdict.SAME
        return Finding(path, line, name, verdict, f"not needed: {ours.removeprefix(_NOT_NEEDED)}")
    return Finding(path, line, name, Verdict.NOT if name in _NO_OPTIONS else Verdict.MAPS, ours)


def setting_finding(path: str, line: int, name: str, value: object) -> Finding | None:
    """One setting of Celery; None for a name that is none."""
    if name in ("task_serializer", "result_serializer") and value not in (None, "json", "msgpack"):
        told = f"{value!r} is not read here, and kept as dead letters: set it to 'json' in the producers"
        return Finding(path, line, name, Verdict.NOT, told)
    if name == "task_serializer":
        return Finding(path, line, name, Verdict.SAME, "JSON and msgpack are read")
    if name == "task_protocol" and value == 1:
        return Finding(path, line, name, Verdict.NOT, "set it to 2 in the producers: protocol 1 is not read")
    if name == "broker_url" and isinstance(value, str) and not value.startswith(_REDIS):
        told = "Celery's messages are read from Redis and Valkey only; move its broker there first"
        return Finding(path, line, name, Verdict.NOT, told)
    found = SETTINGS.get(name)
    return None if found is None else Finding(path, line, name, *found)


_REDIS = ("redis://", "rediss://", "redis+socket://", "sentinel://", "valkey://")
