"""What Celery is to find when a delivery ends: the result under its key, and the messages of what follows.

A success sends the links and the next call of the chain; a failure sends the error links, with the id of what
failed, and fails the rest of the chain, so that nobody waits for it.
"""

from __future__ import annotations

import base64
import builtins
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mqworker.model.settlement import Failure
from mqworker.queues.celery.keys import CeleryKeys, result_key
from mqworker.queues.celery.message import CeleryMessage
from mqworker.queues.celery.values import to_kombu

SUCCESS, FAILURE, RETRY, REVOKED = "SUCCESS", "FAILURE", "RETRY", "REVOKED"


@dataclass(frozen=True, slots=True)
class Write:
    """One write beside a settlement: a result, or a message pushed to a list."""

    kind: str
    key: str
    text: str


@dataclass(frozen=True, slots=True)
class ResultPlace:
    """Where Celery reads results."""

    prefix: str = ""

    def write(
        self,
        message: CeleryMessage,
        status: str,
        result: object,
        now_ms: int,
        *,
        trace: str | None = None,
        children: Sequence[str] = (),
    ) -> Write:
        """The state of a task, as Celery's Redis backend stores it."""
        is_over = status != RETRY
        meta: dict[str, object] = {
            "status": status,
            "result": result,
            "traceback": trace,
            "children": [[[child, None], None] for child in children],
            "date_done": _moment(now_ms).isoformat() if is_over else None,
        }
        if message.group:
            meta["group_id"] = message.group
        if message.parent_id:
            meta["parent_id"] = message.parent_id
        meta["task_id"] = message.task_id
        return Write("result", result_key(self.prefix, message.task_id), json.dumps(meta))


def failure_value(failure: Failure) -> dict[str, object]:
    """An error as Celery's JSON has it; types of Python itself come out as they are."""
    kind = getattr(builtins, failure.error, None)
    is_builtin = isinstance(kind, type) and issubclass(kind, BaseException)
    module = "builtins" if is_builtin else "mqworker"
    return {"exc_type": failure.error, "exc_message": [failure.message], "exc_module": module}


class FollowingMessages:
    """Makes the messages that follow a task; `now_ms` is when it ended."""

    def __init__(self, keys: CeleryKeys, message: CeleryMessage, now_ms: int) -> None:
        self._keys = keys
        self._message = message
        self._now_ms = now_ms
        self.ids: list[str] = []

    def after_success(self, value: object) -> Iterator[Write]:
        """The links, then the next call of the chain; `value` has words in JSON."""
        message = self._message
        for signature in message.callbacks:
            yield self._push(signature, [value])
        if message.chain:
            *rest, following = message.chain
            yield self._push(following, [value], chain=rest)

    def after_failure(self) -> Iterator[Write]:
        """The error links, which are told the id of what failed; those of the rest of the chain, too."""
        for signature in self._message.errbacks:
            yield self._push(signature, [self._message.task_id])

    # Any: signatures, as they stand in JSON.
    def _push(
        self,
        signature: Mapping[str, Any],
        before: list[object],
        chain: Sequence[Mapping[str, Any]] | None = None,
    ) -> Write:
        options: Mapping[str, Any] = signature.get("options") or {}
        task_id = str(options.get("task_id") or uuid.uuid4())
        self.ids.append(task_id)
        args = [to_kombu(each) for each in signature.get("args") or []]
        given = args if signature.get("immutable") else [*before, *args]
        queue = options.get("queue") or options.get("routing_key")
        place = queue if isinstance(queue, str) and queue else self._keys.queue
        priority = options.get("priority")
        priority = priority if type(priority) is int else self._message.priority
        embed = {
            "callbacks": _listed(options.get("link")),
            "errbacks": _listed(options.get("link_error")),
            "chain": list(chain) if chain else None,
            "chord": None,
        }
        headers = self._headers(signature, options, task_id, given)
        body = [given, to_kombu(signature.get("kwargs") or {}), embed]
        text = message_text(
            headers,
            body,
            queue=place,
            priority=priority,
            reply_to=options.get("reply_to") or self._message.reply_to,
        )
        return Write("push", self._keys.list_of(place, priority), text)

    def _headers(
        self, signature: Mapping[str, Any], options: Mapping[str, Any], task_id: str, args: list[object]
    ) -> dict[str, object]:
        own = options.get("headers")
        return {
            **(own if isinstance(own, dict) else {}),
            **protocol_headers(
                task=signature["task"],
                task_id=task_id,
                eta=_instant(options.get("eta"), options.get("countdown"), self._now_ms),
                expires=_instant(options.get("expires"), options.get("expires"), self._now_ms),
                timelimit=[options.get("time_limit"), options.get("soft_time_limit")],
                root_id=self._message.root_id or self._message.task_id,
                parent_id=self._message.task_id,
                argsrepr=repr(tuple(args))[:_LONGEST_REPR],
                kwargsrepr=repr(signature.get("kwargs") or {})[:_LONGEST_REPR],
                group=options.get("group_id"),
                group_index=options.get("group_index"),
                ignore_result=options.get("ignore_result") is True,
            ),
        }


_LONGEST_REPR = 1_024


def protocol_headers(*, task: str, task_id: str, **more: object) -> dict[str, object]:
    """The headers of protocol 2."""
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": None,
        "kwargsrepr": None,
        "origin": "mqworker",
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        **more,
    }


def message_text(
    headers: Mapping[str, object],
    body: Sequence[object],
    *,
    queue: str,
    priority: int = 0,
    reply_to: object = "",
) -> str:
    """A message as kombu pushes it. Raises `TypeError` where JSON has no words for an argument."""
    encoded = base64.b64encode(json.dumps(to_kombu(body)).encode()).decode()
    return json.dumps(
        {
            "body": encoded,
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": headers,
            "properties": {
                "correlation_id": headers["id"],
                "reply_to": reply_to,
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": queue},
                "priority": priority,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
            },
        }
    )


def _listed(signatures: object) -> object:
    """Options may hold one signature in place of a list."""
    return [signatures] if isinstance(signatures, dict) else signatures


def _instant(moment: object, seconds: object, now_ms: int) -> str | None:
    if isinstance(moment, str):
        return moment
    if isinstance(moment, datetime):
        return moment.isoformat()
    if isinstance(seconds, int | float) and not isinstance(seconds, bool):
        return (_moment(now_ms) + timedelta(seconds=seconds)).isoformat()
    return None


def _moment(epoch_ms: int) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
