"""A process that dispatches topics, a record at a time, until it is killed.

Started as `python -m tests.support.dispatching_process <url> <records per call>`.
"""

from __future__ import annotations

import sys

from mqworker.queues.topics.arguments import TopicOptions
from mqworker.queues.topics.client import Topics
from tests.support.messages import open_store


def main(url: str, at_once: str) -> None:
    """Dispatch for ever."""
    topics = Topics(open_store(url), TopicOptions(dispatched_at_once=int(at_once)))
    while True:
        topics.dispatch()


if __name__ == "__main__":
    main(*sys.argv[1:])
