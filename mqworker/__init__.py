"""mqworker: background work on Redis or Valkey, run by actor processes under leases that survive a crash."""

# As type checkers know it: importing `typing` takes as long as half of `mqworker health`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mqworker.model.batch import Batch
    from mqworker.model.breaker import Breaker
    from mqworker.model.fair import Fair
    from mqworker.model.keyring import EncryptionKey, Keyring, SigningKey
    from mqworker.model.rate import Rate
    from mqworker.model.retry_policy import Retry
    from mqworker.model.running import MaxRunning
    from mqworker.model.unique import Unique
    from mqworker.queues.catalogue import CeleryQueue, Gq, Rsmq
    from mqworker.tasks.app import App
    from mqworker.tasks.batch_context import BatchContext
    from mqworker.tasks.batch_task import AsyncBatchTask, BatchTask
    from mqworker.tasks.context import Context, State, current_context
    from mqworker.tasks.default_app import default_app, task
    from mqworker.tasks.hooks import OutgoingCall
    from mqworker.tasks.injection import Depends
    from mqworker.tasks.job import Job
    from mqworker.tasks.joint_wait import aas_completed, as_completed, await_all, wait_all
    from mqworker.tasks.offload.places import S3, Files
    from mqworker.tasks.outcome import JobStatus
    from mqworker.tasks.secret import Secret
    from mqworker.tasks.task import AsyncTask, Task
    from mqworker.tasks.workflows.job import WorkflowJob
    from mqworker.tasks.workflows.members import WorkflowMember
    from mqworker.tasks.workflows.outcome import MemberFailure
    from mqworker.tasks.workflows.step_graph import GraphStep, StepGraph, graph
    from mqworker.tasks.workflows.workflow import chain, chord, group

__version__ = "0.1.0"

# Imported when asked for: `mqworker --version` and `status` must not wait for redis and msgpack.
# fmt: off
_NAMES_BY_MODULE = {
    "mqworker.model.batch": "Batch", "mqworker.model.breaker": "Breaker", "mqworker.model.fair": "Fair",
    "mqworker.tasks.batch_context": "BatchContext", "mqworker.tasks.batch_task": "AsyncBatchTask BatchTask",
    "mqworker.model.keyring": "EncryptionKey Keyring SigningKey", "mqworker.model.running": "MaxRunning",
    "mqworker.model.retry_policy": "Retry", "mqworker.model.rate": "Rate",
    "mqworker.model.unique": "Unique", "mqworker.queues.catalogue": "CeleryQueue Gq Rsmq",
    "mqworker.tasks.app": "App", "mqworker.tasks.context": "Context State current_context",
    "mqworker.tasks.default_app": "default_app task", "mqworker.tasks.hooks": "OutgoingCall",
    "mqworker.tasks.injection": "Depends", "mqworker.tasks.job": "Job",
    "mqworker.tasks.joint_wait": "aas_completed as_completed await_all wait_all",
    "mqworker.tasks.offload.places": "S3 Files", "mqworker.tasks.outcome": "JobStatus",
    "mqworker.tasks.secret": "Secret", "mqworker.tasks.task": "AsyncTask Task",
    "mqworker.tasks.workflows.workflow": "chain chord group", "mqworker.tasks.workflows.job": "WorkflowJob",
    "mqworker.tasks.workflows.step_graph": "GraphStep StepGraph graph",
    "mqworker.tasks.workflows.members": "WorkflowMember", "mqworker.tasks.workflows.outcome": "MemberFailure",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "S3", "App", "AsyncBatchTask", "AsyncTask", "Batch", "BatchContext", "BatchTask", "Breaker",
    "CeleryQueue", "Context", "Depends", "EncryptionKey", "Fair", "Files", "Gq", "GraphStep", "Job",
    "JobStatus", "Keyring", "MaxRunning", "MemberFailure", "OutgoingCall", "Rate", "Retry", "Rsmq",
    "Secret", "SigningKey", "State", "StepGraph", "Task", "Unique", "WorkflowJob", "WorkflowMember",
    "aas_completed", "as_completed", "await_all", "chain", "chord", "current_context", "default_app",
    "graph", "group", "task", "wait_all",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name in _MODULE_BY_NAME:
        from importlib import import_module  # noqa: PLC0415 - as above

        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    if name.isidentifier() and not name.startswith("_"):
        from mqworker.tasks.celery_names import explain_import  # noqa: PLC0415 - as above

        explain_import(name)
    raise AttributeError(f"module 'mqworker' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # for completion: also what was not imported yet
