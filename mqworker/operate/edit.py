"""Editing a dead letter before it goes back in line; and running a job again that has ended.

What an editor sees is masked by name and plain JSON. What comes back unchanged, masks included, stays as it
is stored: a secret that was not shown is not overwritten, a datetime does not become a text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from mqworker.errors import InvalidArgument, InvalidMessage, MqworkerError
from mqworker.model.envelope import CallOptions, Envelope, decode_call, encode_call, explain
from mqworker.model.message import NO_TASK
from mqworker.model.names import message_id, shown
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.model.value_codec import NotAccepted
from mqworker.operate.audit import Deed, note
from mqworker.operate.body import masked_args, masked_arguments, masked_kwargs, plain_masked, read_secrets
from mqworker.operate.system import System
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.trace import read_letter
from mqworker.redaction import MASK
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.tasks.secret import NO_SECRETS, SecretArguments

script = scripts_of("mqworker.queues.work")

_LIMITS = JsonLimits(most_bytes=1_048_576, most_nodes=100_000)


# Any: what JSON can hold.
def editable(system: System, queue: str, id_: str) -> dict[str, Any]:
    """The arguments of a dead letter, masked by name; raises what tells that it cannot be edited."""
    letter = read_letter(system.queue(queue), message_id(id_))
    if letter is None or letter.message is None:
        raise MqworkerError(f"no dead letter {shown(id_)} in queue {queue}: it may be gone already")
    secrets = read_secrets(system.store, system.settings.namespace)
    arguments = masked_arguments(letter.message, secrets)
    if arguments is None:
        raise MqworkerError(f"the body of {id_} is no call: it cannot be edited")
    return arguments


def edit_letter(system: System, queue: str, id_: str, who: str, *, args: str = "", kwargs: str = "") -> str:
    """Replace the arguments by these JSON texts, an empty one: as they are; a sentence that says so."""
    message, work = message_id(id_), system.queue(queue)
    letter, stored = read_letter(work, message), _stored(work, message)
    if letter is None or letter.message is None or stored is None:
        raise MqworkerError(f"no dead letter {message} in queue {queue}: it may be gone already")
    if letter.message.task == NO_TASK:
        raise MqworkerError(f"{message} is a plain element, no call: it cannot be edited")
    try:
        call = decode_call(letter.message.body)
    except InvalidMessage as error:
        raise MqworkerError(f"the body of {message} is no call: {error}") from error
    secrets = read_secrets(system.store, system.settings.namespace)
    body = _edited(call, letter.message.task, args, kwargs, secrets.get(letter.message.task, NO_SECRETS))
    if len(body) > system.settings.max_message_bytes:
        most = system.settings.max_message_bytes
        raise InvalidArgument(f"the arguments are {len(body):,} bytes; accepted are up to {most:,}")
    sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
    verdict = system.store.run(Call(script("revise"), work.calls.keys.shared, (message, sha, body), int))
    if verdict != 1:
        raise MqworkerError(f"{message} of queue {queue} changed meanwhile: look at it again")
    outcome = f"{message} of queue {queue} has other arguments now; it is still dead"
    command = f"mqworker dead edit {message} -q {queue}"
    note(system, Deed(who, "edit", queue, message, 1, outcome, command))
    return outcome


def rerun(system: System, id_: str, queue: str | None, who: str) -> str:
    """Run a job again that has ended; raises what tells that its arguments are not known any more."""
    work, found = system.find(id_, queue)
    match found.where.state:
        case "dead":
            if not work.revive(found.id):
                raise MqworkerError(f"{found.id} of queue {work.name} is not dead any more: look at it again")
        case "ready" | "delayed" | "leased" | "delivered" as state:
            raise MqworkerError(f"{found.id} of queue {work.name} is {state}: it has not ended yet")
        case state:
            told = "has ended" if state == "absent" else f"is {state}"
            raise MqworkerError(
                f"{found.id} of queue {work.name} {told}: its arguments are not kept once it has ended, "
                "unless it is dead; enqueue it anew where it came from"
            )
    outcome = f"{found.id} of queue {work.name} runs again"
    command = f"mqworker job rerun {found.id} -q {work.name}"
    note(system, Deed(who, "rerun", work.name, found.id, 1, outcome, command))
    return outcome


def _stored(work: WorkQueue, message: str) -> bytes | None:
    reply: RawReply = work.store.send(
        [("HGET", work.calls.keys.named("letters"), message)], work.calls.keys.meta
    )[0]
    return reply if isinstance(reply, bytes) else None


def _edited(call: Envelope, task: str, args: str, kwargs: str, secrets: SecretArguments) -> bytes:
    new_args, new_kwargs = call.args, call.kwargs
    if args.strip():
        shown_args = masked_args(call.args, secrets)
        parsed = _parsed("args", args, list)
        new_args = [
            call.args[i] if i < len(shown_args) and value == shown_args[i] == MASK else value
            for i, value in enumerate(_restored(parsed, call.args))
        ]
    if kwargs.strip():
        shown_kwargs = masked_kwargs(call.kwargs, secrets)
        new_kwargs = {
            name: call.kwargs[name] if value == shown_kwargs.get(name) == MASK else value
            for name, value in _restored(_parsed("kwargs", kwargs, dict), call.kwargs).items()
        }
    options = CallOptions(call.headers, call.timeout_ms, call.workflow, call.tags)
    try:
        return encode_call(new_args, new_kwargs, None if options == CallOptions() else options)
    except NotAccepted as refused:
        raise explain(refused, task, {"args": new_args, **new_kwargs}) from refused


# Any: what JSON can hold.
def _parsed(name: str, text: str, kind: type[list[Any] | dict[str, Any]]) -> Any:  # noqa: ANN401 - same
    example = "[1, 2]" if kind is list else '{"tenant": "acme"}'
    try:
        value = read_json(text.encode(errors="replace"), _LIMITS)
    except InvalidMessage as error:
        raise InvalidArgument(f"{name}: {error}; accepted is JSON, such as {example}") from error
    if not isinstance(value, kind):
        raise InvalidArgument(f"{name} is {shown(json.dumps(value))}; accepted is JSON such as {example}")
    return value


def _restored(new: Any, old: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """The new value; wherever it is what was shown of the old one, the old one itself."""
    if isinstance(new, dict) and isinstance(old, Mapping):
        shown_before = plain_masked(old)
        return {
            key: old[key] if key in old and value == shown_before[key] else _restored(value, old.get(key))
            for key, value in new.items()
        }
    if isinstance(new, list) and isinstance(old, list | tuple) and len(new) == len(old):
        return [_restored(value, before) for value, before in zip(new, old, strict=True)]
    return old if new == plain_masked(old) and old is not None else new
