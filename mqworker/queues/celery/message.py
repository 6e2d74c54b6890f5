"""A message of Celery: protocol 2 as kombu stores it in Redis, read within bounds.

    {"body": base64, "content-type": ..., "content-encoding": ..., "headers": {...}, "properties": {...}}

The headers say which task, when, until when, how often it was tried; the body holds `[args, kwargs, embed]`,
and `embed` what follows the task. What cannot be carried over is refused in a sentence before it runs.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.envelope import LONGEST_HEADER, LONGEST_TIMEOUT_MS, MOST_HEADERS, CallOptions, encode_call
from mqworker.model.message import LARGEST_BODY_BYTES, NO_TASK
from mqworker.model.names import MessageId, TaskName, message_id, shown, task_name
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.model.value_codec import NotAccepted, unpack
from mqworker.queues.celery.values import from_kombu

# Larger than the largest body by a third for base64, and again where the call goes along as it is.
LARGEST_MESSAGE_BYTES = LARGEST_BODY_BYTES * 3
_AROUND = JsonLimits(most_bytes=LARGEST_MESSAGE_BYTES, most_nodes=20_000, longest_key_bytes=1_024)
_INSIDE = JsonLimits(most_bytes=LARGEST_BODY_BYTES, most_nodes=20_000, longest_key_bytes=1_024)
MOST_RETRIES = 900
MOST_FOLLOWING = 1_000

_JSON, _MSGPACK = "application/json", "application/x-msgpack"
_PICKLES = ("application/x-python-serialize", "pickle")
EXACT_BODY = "mqw_body"
"""A header of ours: the encoded call in base64, where its arguments in JSON would come back changed."""
_PROTOCOL_HEADERS = frozenset(
    [
        "lang",
        "task",
        "id",
        "shadow",
        "eta",
        "expires",
        "group",
        "group_index",
        "retries",
        "timelimit",
        "root_id",
        "parent_id",
        "argsrepr",
        "kwargsrepr",
        "origin",
        "ignore_result",
        "replaced_task_nesting",
        "stamped_headers",
        "stamps",
        "compression",
        "redelivered",
        "delivery_info",
        "reply_to",
        "correlation_id",
        "hostname",
        "mqw_body",
    ]
)


class MessageRefused(Exception):  # never leaves the queue: becomes the reason of a dead letter
    """It is a message of Celery that cannot be carried over: kept as a dead letter with this sentence."""


@dataclass(frozen=True, slots=True)
class CeleryMessage:
    """What a message says; the call in `body` is encoded as workers of ours read it."""

    task_id: str
    """Celery's own; results are stored under it."""
    task: TaskName
    body: bytes = field(repr=False)
    retries: int = 0
    eta_ms: int | None = None
    expires_ms: int | None = None
    ignores_result: bool = False
    priority: int = 0
    root_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    reply_to: str = ""
    # Any: signatures as they stand in JSON; checked by `_following`.
    callbacks: Sequence[Mapping[str, Any]] = ()
    errbacks: Sequence[Mapping[str, Any]] = ()
    chain: Sequence[Mapping[str, Any]] = ()
    """What follows, the next one last."""

    @property
    def has_following(self) -> bool:
        """Whether anything is sent when it ends."""
        return bool(self.callbacks or self.errbacks or self.chain)

    @property
    def id(self) -> MessageId:
        """The same where it is an id by our rule; else one made of it."""
        return own_id(self.task_id)


def own_id(task_id: str) -> MessageId:
    """An id by our rule: Celery's is whatever its sender likes."""
    try:
        return message_id(task_id)
    except InvalidArgument:
        return MessageId("celery-" + hashlib.sha256(task_id.encode(errors="replace")).hexdigest()[:32])


# Any: JSON.
def read_message(raw: bytes) -> CeleryMessage:
    """What a message says. Raises `InvalidMessage` for anything else, `MessageRefused` with the reason."""
    around = _dict("the message", read_json(raw, _AROUND))
    headers = _dict("headers", around.get("headers"))
    properties = _dict("properties", around.get("properties") or {})
    if "task" not in headers:
        raise MessageRefused(
            "the message has no task in its headers, as in protocol 1 or from another program; accepted is "
            "protocol 2: set task_protocol = 2 in the producer"
        )
    _refuse_chord_task(headers["task"])
    args, kwargs, embed = _call_of(around, headers, properties)
    if embed.get("chord") is not None:
        raise MessageRefused(
            "the message is a member of a chord, whose count only Celery keeps; accepted are calls, chains "
            "and links: let Celery's workers finish its chords, or start them as mqworker.chord"
        )
    return CeleryMessage(
        task_id=_text("id", headers.get("id") or properties.get("correlation_id")),
        task=_task(headers["task"]),
        body=_exact(headers) if EXACT_BODY in headers else _encoded(args, kwargs, headers),
        retries=_retries(headers.get("retries")),
        eta_ms=_instant_ms("eta", headers.get("eta")),
        expires_ms=_instant_ms("expires", headers.get("expires")),
        ignores_result=headers.get("ignore_result") is True,
        priority=_priority(properties.get("priority")),
        root_id=_optional_text("root_id", headers.get("root_id")),
        parent_id=_optional_text("parent_id", headers.get("parent_id")),
        group=_optional_text("group", headers.get("group")),
        reply_to=_optional_text("reply_to", properties.get("reply_to")) or "",
        callbacks=_following("link", embed.get("callbacks")),
        errbacks=_following("link_error", embed.get("errbacks")),
        chain=_following("chain", embed.get("chain")),
    )


def known_id(raw: bytes) -> str | None:
    """The id in the headers, for a message that is refused; None where there is none to be found."""
    try:
        value = read_json(raw, _AROUND)["headers"]["id"]
    except (InvalidMessage, KeyError, TypeError):
        return None
    return value if isinstance(value, str) and value else None


def _refuse_chord_task(task: object) -> None:
    if task in ("celery.chord_unlock", "celery.chord", "celery.accumulate"):
        raise MessageRefused(
            f"{task} counts the members of a chord for Celery; accepted are calls, chains and links: let "
            "Celery's workers finish its chords, or start them as mqworker.chord"
        )


def _call_of(
    around: Mapping[str, Any], headers: Mapping[str, Any], properties: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    value = _body_value(around, headers, properties)
    match value:
        case [list(args), dict(kwargs), dict(embed)] if all(isinstance(name, str) for name in kwargs):
            return args, kwargs, embed
    raise InvalidMessage("the body is not [args, kwargs, embed] of protocol 2")


def _body_value(
    around: Mapping[str, Any], headers: Mapping[str, Any], properties: Mapping[str, Any]
) -> object:
    kind = around.get("content-type")
    if kind in _PICKLES:
        raise MessageRefused(
            "the body is a pickle, which runs code as it is read; accepted are JSON and msgpack: set "
            "task_serializer = 'json' in the producer"
        )
    if kind not in (_JSON, _MSGPACK):
        raise MessageRefused(
            f"the body is {shown(kind)}; accepted are JSON and msgpack: set task_serializer = 'json' in the "
            "producer"
        )
    body = _unpacked(_bytes_of(around.get("body"), properties), headers.get("compression"))
    return from_kombu(read_json(body, _INSIDE)) if kind == _JSON else unpack(body)


def _bytes_of(body: object, properties: Mapping[str, Any]) -> bytes:
    if not isinstance(body, str):
        raise InvalidMessage(f"body is {shown(body)}; accepted is a text")
    encoding = properties.get("body_encoding")
    if encoding not in ("base64", None):
        raise InvalidMessage(f"body_encoding is {shown(encoding)}; accepted is base64")
    if encoding is None:
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidMessage(f"body is not base64: {error}") from error


def _unpacked(body: bytes, compression: object) -> bytes:
    if compression is None:
        return body
    if compression == "application/x-gzip":
        data = _inflated(zlib.decompressobj().decompress, body)
    elif compression == "application/x-bz2":
        data = _inflated(bz2.BZ2Decompressor().decompress, body)
    else:
        raise MessageRefused(f"the body is compressed by {shown(compression)}; accepted are gzip and bzip2")
    return data


def _inflated(decompress: Callable[[bytes, int], bytes], body: bytes) -> bytes:
    """No more than is accepted, whatever the few bytes would become."""
    try:
        data = decompress(body, LARGEST_BODY_BYTES + 1)
    except (zlib.error, OSError, EOFError, ValueError) as error:
        raise InvalidMessage(f"the body cannot be decompressed: {error}") from error
    if len(data) > LARGEST_BODY_BYTES:
        raise InvalidMessage(f"the body is larger than {LARGEST_BODY_BYTES:,} bytes when decompressed")
    return data


def _encoded(args: list[Any], kwargs: dict[str, Any], headers: Mapping[str, Any]) -> bytes:
    options = CallOptions(headers=_own_headers(headers), timeout_ms=_timeout_ms(headers.get("timelimit")))
    try:
        body = encode_call(args, kwargs, None if options == CallOptions() else options)
    except NotAccepted as refused:
        raise InvalidMessage(f"the arguments cannot be carried over: {refused}") from refused
    if len(body) > LARGEST_BODY_BYTES:
        raise InvalidMessage(
            f"the arguments are {len(body):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}"
        )
    return body


def _exact(headers: Mapping[str, Any]) -> bytes:
    body = _bytes_of(headers[EXACT_BODY], {"body_encoding": "base64"})
    if len(body) > LARGEST_BODY_BYTES:
        raise InvalidMessage(f"the call is {len(body):,} bytes; accepted are up to {LARGEST_BODY_BYTES:,}")
    return body


def _own_headers(headers: Mapping[str, Any]) -> dict[str, str]:
    """Those that the caller added, as texts; what is longer than a header may be stays behind."""
    own: dict[str, str] = {}
    for name, value in headers.items():
        if name in _PROTOCOL_HEADERS or value is None or len(own) == MOST_HEADERS:
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if len(name) + len(text) <= LONGEST_HEADER:
            own[name] = text
    return own


def _timeout_ms(limits: object) -> int | None:
    """The soft limit, or the hard one where that is alone: a run has one time-out of its own."""
    if not isinstance(limits, list):
        return None
    seconds = [each for each in limits[:2] if isinstance(each, int | float) and not isinstance(each, bool)]
    return min(LONGEST_TIMEOUT_MS, max(1, round(min(seconds) * 1000))) if seconds else None


def _following(what: str, signatures: object) -> tuple[Mapping[str, Any], ...]:
    """What is to follow: plain calls only, for which the next message can be made here."""
    if signatures is None:
        return ()
    if not isinstance(signatures, list) or len(signatures) > MOST_FOLLOWING:
        raise InvalidMessage(
            f"{what} is {shown(signatures)}; accepted is a list of up to {MOST_FOLLOWING} calls"
        )
    for each in signatures:
        _check_signature(what, each)
    return tuple(signatures)


def _check_signature(what: str, signature: object) -> None:
    each = _dict(f"a call of {what}", signature)
    options = _dict(f"the options of a call of {what}", each.get("options") or {})
    is_plain = each.get("subtask_type") is None and not str(each.get("task")).startswith("celery.")
    if not is_plain or options.get("chord") is not None:
        raise MessageRefused(
            f"its {what} holds a {each.get('subtask_type') or each.get('task')}, which only Celery can "
            "start; accepted there are calls: let Celery's workers run it"
        )
    if options.get("serializer") not in (None, "json", "msgpack"):
        raise MessageRefused(f"its {what} is to be sent as {shown(options['serializer'])}; accepted is JSON")
    _text(f"the task of a call of {what}", each.get("task"))
    if not isinstance(each.get("args") or [], list):
        raise InvalidMessage(f"a call of {what} has no list of args")
    _dict(f"the kwargs of a call of {what}", each.get("kwargs") or {})
    for name in ("link", "link_error"):
        more = options.get(name)
        for one in more if isinstance(more, list) else [] if more is None else [more]:
            _check_signature(name, one)


def _task(name: object) -> TaskName:
    if name == NO_TASK:
        return NO_TASK
    try:
        return task_name(_text("task", name))
    except InvalidArgument as error:
        raise UnknownName(str(error)) from error


class UnknownName(Exception):  # never leaves the queue either
    """No task of ours can be named so: it is left for Celery."""


def _text(what: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise InvalidMessage(f"{what} is {shown(value)}; accepted is a text")


def _optional_text(what: str, value: object) -> str | None:
    return None if value in (None, "") else _text(what, value)


def _dict(what: str, value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise InvalidMessage(f"{what}: {shown(value)}; accepted is an object")


def _retries(value: object) -> int:
    """Other clients leave it out; what cannot be a count is none."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return min(value, MOST_RETRIES)
    return 0


def _priority(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _instant_ms(what: str, value: object) -> int | None:
    if value is None or isinstance(value, datetime):
        return None if value is None else _epoch_ms(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1000)
    try:
        return _epoch_ms(datetime.fromisoformat(_text(what, value)))
    except (ValueError, OverflowError) as error:
        raise InvalidMessage(f"{what} is {shown(value)}; accepted is a moment in ISO 8601") from error


def _epoch_ms(moment: datetime) -> int:
    """Celery's producers write UTC where they write no zone."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(aware.timestamp() * 1000))
