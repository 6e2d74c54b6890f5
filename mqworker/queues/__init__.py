"""The queue models, public as libraries: all the verbs of their documents, and ours."""

from mqworker.queues.queue_model import Capability, QueueModel
from mqworker.queues.work import WorkQueue
from mqworker.queues.work_async import AsyncWorkQueue
from mqworker.queues.work_calls import PendingElement, WorkQueueOptions
from mqworker.queues.work_steps import QueueCounts, Whereabouts

__all__ = [
    "AsyncWorkQueue",
    "Capability",
    "PendingElement",
    "QueueCounts",
    "QueueModel",
    "Whereabouts",
    "WorkQueue",
    "WorkQueueOptions",
]
