"""The queue models, public as libraries: all the verbs of their documents, and ours."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqworker.queues.gq.client import GqClient
    from mqworker.queues.queue_model import Capability, QueueModel
    from mqworker.queues.rsmq.arguments import RsmqError
    from mqworker.queues.rsmq.calls import RsmqAttributes, RsmqMessage, RsmqOptions
    from mqworker.queues.rsmq.client import AsyncRsmqClient, RsmqClient
    from mqworker.queues.rsmq.queue import RsmqQueue
    from mqworker.queues.skmq.client import SkmqClient, SkmqRefused, SkmqReply, SkmqUnavailable
    from mqworker.queues.skmq.listener import SkmqListener, SkmqPush, SkmqReject
    from mqworker.queues.topics.arguments import TopicOptions
    from mqworker.queues.topics.calls import TopicNameTaken, TopicRecord
    from mqworker.queues.topics.client import AsyncTopics, Topics
    from mqworker.queues.work.async_queue import AsyncWorkQueue
    from mqworker.queues.work.calls import PendingElement, WorkQueueOptions
    from mqworker.queues.work.queue import WorkQueue
    from mqworker.queues.work.steps import QueueCounts, Whereabouts

# Imported when asked for: a node needs one model as a rule, and each module costs it time and memory.
# fmt: off
_NAMES_BY_MODULE = {
    "gq.client": "GqClient", "queue_model": "Capability QueueModel",
    "rsmq.arguments": "RsmqError", "rsmq.calls": "RsmqAttributes RsmqMessage RsmqOptions",
    "rsmq.client": "AsyncRsmqClient RsmqClient", "rsmq.queue": "RsmqQueue",
    "skmq.client": "SkmqClient SkmqRefused SkmqReply SkmqUnavailable",
    "skmq.listener": "SkmqListener SkmqPush SkmqReject",
    "topics.arguments": "TopicOptions", "topics.calls": "TopicNameTaken TopicRecord",
    "topics.client": "AsyncTopics Topics",
    "work.async_queue": "AsyncWorkQueue", "work.calls": "PendingElement WorkQueueOptions",
    "work.queue": "WorkQueue", "work.steps": "QueueCounts Whereabouts",
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names.split()}

__all__ = [
    "AsyncRsmqClient", "AsyncTopics", "AsyncWorkQueue", "Capability", "GqClient", "PendingElement",
    "QueueCounts", "QueueModel", "RsmqAttributes", "RsmqClient", "RsmqError", "RsmqMessage", "RsmqOptions",
    "RsmqQueue", "SkmqClient", "SkmqListener", "SkmqPush", "SkmqRefused", "SkmqReject", "SkmqReply",
    "SkmqUnavailable", "TopicNameTaken", "TopicOptions", "TopicRecord", "Topics", "Whereabouts",
    "WorkQueue", "WorkQueueOptions",
]
# fmt: on


def __getattr__(name: str) -> object:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(f"mqworker.queues.{_MODULE_BY_NAME[name]}"), name)
    raise AttributeError(f"module 'mqworker.queues' has no attribute {name!r}")
