"""mqworker: background work on Redis or Valkey, run by actor processes under leases that survive a crash."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqworker.model.rate import Rate
    from mqworker.model.retry_policy import Retry
    from mqworker.model.unique import Unique
    from mqworker.tasks.app import App
    from mqworker.tasks.context import Context, current_context
    from mqworker.tasks.default_app import default_app, task
    from mqworker.tasks.job import Job, as_completed, wait_all
    from mqworker.tasks.outcome import JobStatus
    from mqworker.tasks.task import AsyncTask, Task
    from mqworker.tasks.workflow import chain, chord, group
    from mqworker.tasks.workflow_job import WorkflowJob
    from mqworker.tasks.workflow_outcome import MemberFailure

__version__ = "0.1.0"

# Imported when asked for: `mqworker --version` and `status` must not wait for redis and msgpack.
_MODULE_BY_NAME = {
    "App": "mqworker.tasks.app",
    "AsyncTask": "mqworker.tasks.task",
    "Context": "mqworker.tasks.context",
    "Job": "mqworker.tasks.job",
    "JobStatus": "mqworker.tasks.outcome",
    "MemberFailure": "mqworker.tasks.workflow_outcome",
    "Rate": "mqworker.model.rate",
    "Retry": "mqworker.model.retry_policy",
    "Task": "mqworker.tasks.task",
    "Unique": "mqworker.model.unique",
    "WorkflowJob": "mqworker.tasks.workflow_job",
    "as_completed": "mqworker.tasks.job",
    "chain": "mqworker.tasks.workflow",
    "chord": "mqworker.tasks.workflow",
    "current_context": "mqworker.tasks.context",
    "default_app": "mqworker.tasks.default_app",
    "group": "mqworker.tasks.workflow",
    "task": "mqworker.tasks.default_app",
    "wait_all": "mqworker.tasks.job",
}

# fmt: off
__all__ = [
    "App", "AsyncTask", "Context", "Job", "JobStatus", "MemberFailure", "Rate", "Retry", "Task", "Unique",
    "WorkflowJob", "as_completed", "chain", "chord", "current_context", "default_app", "group", "task",
    "wait_all",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    raise AttributeError(f"module 'mqworker' has no attribute {name!r}")
