"""The body of a message for people: arguments decoded, secrets masked, everything escaped.

What is secret is told by names: of keywords, of keys inside values, and of the parameters that workers
published (tasks/secret.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.message import NO_TASK
from mqworker.operate.visible_body import BodyHidden, visible_call
from mqworker.operate.wording import escaped, safe
from mqworker.queues.work.keys import tasks_key
from mqworker.redaction import MASK, is_secret_name
from mqworker.store.script import RawReply
from mqworker.store.store import Store
from mqworker.tasks.published_tasks import decode_secrets
from mqworker.tasks.secret import NO_SECRETS, SecretArguments

LONGEST_VALUE = 2_000
_DEEPEST = 20

Secrets = Mapping[str, SecretArguments]
"""By task; none of a task that nobody published, or that has none."""

# A page is drawn every second, and what workers published hardly ever changes.
_decoded = lru_cache(maxsize=64)(decode_secrets)


def read_secrets(store: Store, namespace: str) -> Secrets:
    """Which arguments of which tasks are not to be shown."""
    key = tasks_key(namespace)
    reply: RawReply = store.send([("HVALS", key)], key)[0]
    return {task: secrets for text in reply for task, secrets in _decoded(text).items()}


def body_lines(delivery: Delivery, secrets: Secrets) -> list[tuple[str, str]]:
    """Labels and texts: the arguments of a call, or the bytes of a plain element."""
    if delivery.task != NO_TASK:
        try:
            call = visible_call(delivery.body)
        except BodyHidden as hidden:
            return [("args", str(hidden))]
        except InvalidMessage as error:
            return [("body", f"not a call: {safe(str(error))}"), ("", _as_text(delivery.body))]
        own = secrets.get(delivery.task, NO_SECRETS)
        positional = [
            (f"args[{i}]", MASK if own.is_at(i) else shown_value(value)) for i, value in enumerate(call.args)
        ]
        named = [
            (safe(name), MASK if own.is_named(name) else shown_value(value))
            for name, value in call.kwargs.items()
        ]
        headers = [(f"header {safe(name)}", _named(name, text)) for name, text in call.headers.items()]
        return [*positional, *named, *headers] or [("args", "none")]
    return [("body", _as_text(delivery.body))]


# Any: what JSON can hold.
def masked_arguments(delivery: Delivery, secrets: Secrets) -> dict[str, Any] | None:
    """The arguments of a call as plain values, secrets masked; None where the body is not a call."""
    try:
        call = visible_call(delivery.body) if delivery.task != NO_TASK else None
    except (InvalidMessage, BodyHidden):
        return None
    if call is None:
        return None
    own = secrets.get(delivery.task, NO_SECRETS)
    return {"args": masked_args(call.args, own), "kwargs": masked_kwargs(call.kwargs, own)}


def masked_args(args: Sequence[object], secrets: SecretArguments) -> list[Any]:
    """Positional arguments as they are shown."""
    return [MASK if secrets.is_at(i) else plain_masked(value) for i, value in enumerate(args)]


def masked_kwargs(kwargs: Mapping[str, object], secrets: SecretArguments) -> dict[str, Any]:
    """Arguments with keywords as they are shown."""
    return {name: MASK if secrets.is_named(name) else plain_masked(value) for name, value in kwargs.items()}


def plain_masked(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    """A value as it is shown: plain, and secrets masked by name."""
    return _plain(_masked(value, 0))


def _plain(value: object) -> Any:  # noqa: ANN401 - what JSON can hold
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else safe(repr(value), LONGEST_VALUE)


def _named(name: str, value: object) -> str:
    return MASK if is_secret_name(name) else shown_value(value)


def shown_value(value: object) -> str:
    """A value on one line, without what stands under a telling name."""
    return safe(repr(_masked(value, 0)), LONGEST_VALUE)


def _masked(value: object, depth: int) -> object:
    """The value without what stands under a telling name, at any depth."""
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {
            key: MASK if is_secret_name(str(key)) else _masked(item, depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        items = [_masked(item, depth + 1) for item in value]
        return items if isinstance(value, list) else tuple(items)
    return value


def _as_text(body: bytes) -> str:
    return escaped(safe(body.decode(errors="backslashreplace"), LONGEST_VALUE))
