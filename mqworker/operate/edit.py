"""Editing a dead letter before it goes back in line; and running a job again that has ended.

What an editor sees is masked by name and plain JSON. What comes back unchanged, masks included, stays as it
is stored: a secret that was not shown is not overwritten, a datetime does not become a text.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from mqworker.errors import (
    InvalidArgument,
    InvalidMessage,
    MqworkerError,
    NotVerified,
    PayloadMissing,
    PayloadUnavailable,
    StoreUnavailable,
)
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import CallOptions, Envelope, decode_call, encode_call, explain
from mqworker.model.keyring import SEALED
from mqworker.model.message import NO_TASK
from mqworker.model.names import message_id, shown
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.model.value_codec import NotAccepted
from mqworker.operate.audit import Deed, note
from mqworker.operate.body import masked_args, masked_arguments, masked_kwargs, plain_masked, read_secrets
from mqworker.operate.calls import Caller, NamedCall
from mqworker.operate.lake import find_in_lake
from mqworker.operate.system import System
from mqworker.queues.work.queue import WorkQueue
from mqworker.queues.work.trace import Trace, read_letter
from mqworker.redaction import MASK
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.tasks.payloads import payloads_of, without_keys
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
    arguments = masked_arguments(_opened(system, queue, letter.message), secrets)
    if arguments is None:
        raise MqworkerError(f"the body of {id_} is not a call: it cannot be edited")
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
        call = decode_call(_opened(system, queue, letter.message).body)
    except InvalidMessage as error:
        raise MqworkerError(f"the body of {message} is not a call: {error}") from error
    secrets = read_secrets(system.store, system.settings.namespace)
    body = _edited(call, letter.message.task, args, kwargs, secrets.get(letter.message.task, NO_SECRETS))
    if len(body) > system.settings.max_message_bytes:
        most = system.settings.max_message_bytes
        raise InvalidArgument(f"the arguments are {len(body):,} bytes; accepted are up to {most:,}")
    payloads = payloads_of(system.settings)
    if payloads is not None:
        body = payloads.close_message(queue, letter.message.task, message, body, None)
    sha = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
    verdict = system.store.run(Call(script("revise"), work.calls.keys.shared, (message, sha, body), int))
    if verdict != 1:
        raise MqworkerError(f"{message} of queue {queue} changed meanwhile: look at it again")
    outcome = f"{message} of queue {queue} has other arguments now; it is still dead"
    command = f"mqworker dead edit {message} -q {queue}"
    note(system, Deed(who, "edit", queue, message, 1, outcome, command))
    return outcome


def rerun(
    system: System,
    id_: str,
    queue: str | None,
    who: str,
    *,
    args: str | None = None,
    kwargs: str | None = None,
) -> str:
    """Run a job again that has ended; one that is not dead, with these arguments (JSON), as a new job.

    Raises what tells that its arguments are not known any more, and were not given.
    """
    found = _ended(system, id_, queue)
    if found.where.state == "dead":
        if args is not None or kwargs is not None:
            raise InvalidArgument(f"{found.id} is dead and keeps its arguments; edit them, then run it again")
        if not system.open_queue(found.queue).revive(found.id):
            raise MqworkerError(f"{found.id} of queue {found.queue} is not dead any more: look at it again")
        outcome = f"{found.id} of queue {found.queue} runs again"
    else:
        outcome = (
            f"{found.id} of queue {found.queue} runs again as {_call_again(system, found, args, kwargs)}"
        )
    command = shlex.join(["mqworker", "job", "rerun", found.id, "-q", found.queue])
    command += "" if args is None and kwargs is None else " --args … --kwargs …"
    note(system, Deed(who, "rerun", found.queue, found.id, 1, outcome, command))
    return outcome


def _opened(system: System, queue: str, message: Delivery) -> Delivery:
    """The letter's call as its producer encoded it; an editor has to have the keys that workers have."""
    payloads = payloads_of(system.settings)
    try:
        if payloads is not None:
            payloads.open_delivery(queue, message)
    except (NotVerified, PayloadMissing, PayloadUnavailable) as error:
        raise MqworkerError(f"{message.id} cannot be edited: {error}") from error
    if message.body[:1] == SEALED:
        raise MqworkerError(f"{message.id} cannot be edited: {without_keys('its call')}")
    return message


def task_of_ended(system: System, id_: str, queue: str | None) -> str:
    """Which task an ended job was of, by its events; raises what tells that nobody knows."""
    found = _ended(system, id_, queue)
    told = (str(past.facts["task"]) for past in found.past if "task" in past.facts)
    task = str(found.delivery.task) if found.delivery else next(told, None)
    if task is None:
        raise MqworkerError(f"{found.id} of queue {found.queue}: its events are no longer kept, nor its task")
    return task


def _ended(system: System, id_: str, queue: str | None) -> Trace:
    try:
        found = system.find(id_, queue)[1]
    except (InvalidArgument, StoreUnavailable):
        raise
    except MqworkerError:
        archived = find_in_lake(system, id_, queue)
        if archived is None:
            raise
        return archived
    if found.where.state in _NOT_ENDED:
        raise MqworkerError(f"{found.id} of queue {found.queue} is {found.where.state}: it has not ended yet")
    return found


_NOT_ENDED = {"ready", "delayed", "limited", "leased", "delivered"}


def _call_again(system: System, found: Trace, args: str | None, kwargs: str | None) -> str:
    task = task_of_ended(system, found.id, found.queue)
    if args is None and kwargs is None:
        told = "has ended" if found.where.state == "absent" else f"is {found.where.state}"
        raise MqworkerError(
            f"{found.id} of queue {found.queue} {told}: its arguments are not kept once it has ended, unless "
            f"it is dead; give those for {task} (--args, --kwargs), or enqueue it anew where it came from"
        )
    call = NamedCall(task, _parsed("args", args or "[]", list), _parsed("kwargs", kwargs or "{}", dict))
    caller = Caller(system.settings)
    try:
        return str(caller.enqueue(call).id)
    finally:
        caller.close()


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
