"""The queue models, public as libraries: all the verbs of their documents, and ours."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqworker.queues.gq import GqClient
    from mqworker.queues.queue_model import Capability, QueueModel
    from mqworker.queues.rsmq import Rsmq
    from mqworker.queues.rsmq_async import AsyncRsmq
    from mqworker.queues.rsmq_calls import RsmqAttributes, RsmqMessage, RsmqOptions
    from mqworker.queues.rsmq_errors import RsmqError
    from mqworker.queues.rsmq_queue import RsmqQueue
    from mqworker.queues.skmq_client import SkmqClient, SkmqRefused, SkmqReply, SkmqUnavailable
    from mqworker.queues.skmq_listener import SkmqListener, SkmqPush, SkmqReject
    from mqworker.queues.topic import Topics
    from mqworker.queues.topic_arguments import TopicOptions
    from mqworker.queues.topic_async import AsyncTopics
    from mqworker.queues.topic_calls import TopicRecord
    from mqworker.queues.topic_errors import TopicNameTaken
    from mqworker.queues.work import WorkQueue
    from mqworker.queues.work_async import AsyncWorkQueue
    from mqworker.queues.work_calls import PendingElement, WorkQueueOptions
    from mqworker.queues.work_steps import QueueCounts, Whereabouts

# Imported when asked for: a node needs one model as a rule, and each module costs it time and memory.
# fmt: off
_NAMES_BY_MODULE = {
    "gq": "GqClient", "queue_model": "Capability QueueModel", "rsmq": "Rsmq", "rsmq_async": "AsyncRsmq",
    "rsmq_calls": "RsmqAttributes RsmqMessage RsmqOptions", "rsmq_errors": "RsmqError",
    "rsmq_queue": "RsmqQueue", "skmq_client": "SkmqClient SkmqRefused SkmqReply SkmqUnavailable",
    "skmq_listener": "SkmqListener SkmqPush SkmqReject", "topic": "Topics",
    "topic_arguments": "TopicOptions", "topic_async": "AsyncTopics", "topic_calls": "TopicRecord",
    "topic_errors": "TopicNameTaken", "work": "WorkQueue", "work_async": "AsyncWorkQueue",
    "work_calls": "PendingElement WorkQueueOptions", "work_steps": "QueueCounts Whereabouts",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AsyncRsmq", "AsyncTopics", "AsyncWorkQueue", "Capability", "GqClient", "PendingElement",
    "QueueCounts", "QueueModel", "Rsmq", "RsmqAttributes", "RsmqError", "RsmqMessage", "RsmqOptions",
    "RsmqQueue", "SkmqClient", "SkmqListener", "SkmqPush", "SkmqRefused", "SkmqReject", "SkmqReply",
    "SkmqUnavailable", "TopicNameTaken", "TopicOptions", "TopicRecord", "Topics", "Whereabouts",
    "WorkQueue", "WorkQueueOptions",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"mqworker.queues.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module 'mqworker.queues' has no attribute {name!r}")
