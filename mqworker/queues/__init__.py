"""The queue models, public as libraries: all the verbs of their documents, and ours."""

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

__all__ = [
    "AsyncRsmq",
    "AsyncTopics",
    "AsyncWorkQueue",
    "Capability",
    "GqClient",
    "PendingElement",
    "QueueCounts",
    "QueueModel",
    "Rsmq",
    "RsmqAttributes",
    "RsmqError",
    "RsmqMessage",
    "RsmqOptions",
    "RsmqQueue",
    "SkmqClient",
    "SkmqListener",
    "SkmqPush",
    "SkmqRefused",
    "SkmqReject",
    "SkmqReply",
    "SkmqUnavailable",
    "TopicNameTaken",
    "TopicOptions",
    "TopicRecord",
    "Topics",
    "Whereabouts",
    "WorkQueue",
    "WorkQueueOptions",
]
