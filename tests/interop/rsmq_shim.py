"""The other end of rsmq_shim.js: calls our RSMQ with what a Node.js program gave, and answers in npm's forms.

One JSON line in, one out, in order. The server's URL is in SHIM_REDIS_URL.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from mqworker.queues.rsmq.arguments import RsmqError
from mqworker.queues.rsmq.calls import RsmqMessage
from mqworker.queues.rsmq.client import RsmqClient
from tests.support.messages import open_store

# Any: whatever the program gave, right or wrong; that is what is tested.
Options = dict[str, Any]


def answers_of(ours: RsmqClient) -> dict[str, Callable[[Options], object]]:
    """What each operation of the npm package answers."""

    def only(options: Options, *names: str) -> Options:
        return {name: options[name] for name in names if name in options}

    return {
        "createQueue": lambda given: _one(
            ours.create_queue(given.get("qname"), **only(given, "vt", "delay", "maxsize"))
        ),
        "listQueues": lambda _given: ours.list_queues(),
        "deleteQueue": lambda given: _one(ours.delete_queue(given.get("qname"))),
        "getQueueAttributes": lambda given: asdict(ours.get_queue_attributes(given.get("qname"))),
        "setQueueAttributes": lambda given: asdict(
            ours.set_queue_attributes(given.get("qname"), **only(given, "vt", "delay", "maxsize"))
        ),
        "sendMessage": lambda given: ours.send_message(
            given.get("qname"), given.get("message"), **only(given, "delay")
        ),
        "receiveMessage": lambda given: _message(
            ours.receive_message(given.get("qname"), **only(given, "vt"))
        ),
        "popMessage": lambda given: _message(ours.pop_message(given.get("qname"))),
        "deleteMessage": lambda given: int(ours.delete_message(given.get("qname"), given.get("id"))),
        "changeMessageVisibility": lambda given: int(
            ours.change_message_visibility(given.get("qname"), given.get("id"), vt=given.get("vt"))
        ),
    }


def main() -> None:
    """Answers until its input ends."""
    store = open_store(os.environ["SHIM_REDIS_URL"])
    answers = answers_of(RsmqClient(store))
    for line in sys.stdin:
        question = json.loads(line)
        try:
            reply = {"result": answers[question["operation"]](question["options"])}
        except RsmqError as error:
            reply = {"error": {"name": error.name, "message": error.message}}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()
    store.close()


def _one(_done: None) -> int:
    return 1


def _message(received: RsmqMessage | None) -> dict[str, object]:
    if received is None:
        return {}
    return {**asdict(received), "message": received.message.decode()}


if __name__ == "__main__":
    main()
