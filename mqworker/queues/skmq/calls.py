"""The scripts of the SKMQ model as calls: arguments in the order of each contract, replies as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqworker.model.gateway_options import HIGHEST_PORT
from mqworker.model.guard import Guard, GuardMode, chosen_id_guard, unique_guard
from mqworker.model.names import ConsumerName, MessageId, QueueName, parse_whole
from mqworker.queues.skmq.keys import SkmqKeys, SkmqQueueKeys
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

GUARD_MS = 24 * 3_600_000
"""How long a msgid stays taken at most, whatever becomes of its message."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where a message is, as far as the index knows."""

    queue: QueueName
    id: str
    consumer: ConsumerName | None = None
    """Who holds it, if it was ever pushed."""
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Addressee:
    """A recipient as deliveries need it."""

    key: str
    host: str
    port: int
    id: str


class SkmqCalls:
    """Builds calls on what all apps share; pure."""

    def __init__(self, namespace: str, guard_ms: int = GUARD_MS) -> None:
        self._namespace = namespace
        self._keys = SkmqKeys(namespace)
        self._guard_ms = guard_ms

    def of_queue(self, queue: QueueName) -> SkmqQueueCalls:
        """The calls of one app."""
        return SkmqQueueCalls(SkmqQueueKeys.of(self._namespace, queue))

    def reserve(
        self, queue: QueueName, messages: Sequence[tuple[str, str]], gone_id: str = ""
    ) -> Call[list[IndexEntry | None]]:
        """Note where messages, (msgid, id) each, will be; for each None, or what is known of another.

        `gone_id`: the message of the same msgid that is known to be gone and is replaced.
        """
        arguments = [part for message in messages for part in message]
        keys = (self._keys.index, self._keys.queues)
        return Call(script("reserve"), keys, (self._guard_ms, queue, gone_id, *arguments), _entries)

    def note(self, entries: Sequence[tuple[str, IndexEntry]]) -> Call[int]:
        """Write down who holds messages: pairs of a field and its entry."""
        arguments = [
            part
            for field, entry in entries
            for part in (field, f"{entry.queue} {entry.id} {entry.consumer or '-'} {entry.fence}")
        ]
        return Call(script("note"), (self._keys.index,), tuple(arguments), int)

    def forget(self, entries: Sequence[tuple[str, str]]) -> Call[int]:
        """Drop entries of settled messages: pairs of a field and an id."""
        arguments = tuple(part for entry in entries for part in entry)
        return Call(script("forget"), (self._keys.index,), arguments, int)

    def find(self, fields: Sequence[str]) -> Call[list[IndexEntry | None]]:
        """Look messages up."""
        return Call(script("find"), (self._keys.index,), tuple(fields), _entries)

    def move(self, key: str, queue: QueueName, *, must_stay: bool = False) -> Call[QueueName | None]:
        """A recipient registers at a queue; the other one where it was before, or is if it must stay."""
        keys = (self._keys.homes, self._keys.queues)
        return Call(
            script("move"),
            keys,
            (key, queue, int(must_stay)),
            lambda old: QueueName(old.decode()) if old else None,
        )

    def queues(self) -> Call[list[QueueName]]:
        """The queues of all apps."""
        return Call(
            script("queues"),
            (self._keys.queues,),
            (),
            lambda names: [QueueName(_text(n)) for n in names],
        )


class SkmqQueueCalls:
    """Builds calls on one app; pure."""

    def __init__(self, keys: SkmqQueueKeys) -> None:
        self._keys = keys
        self._work = keys.work

    def holder(self, guard_key: str) -> Call[str]:
        """The id of the message that holds a guard, '' when nobody does."""
        return Call(script("holder"), (self._work.named("guards"),), (guard_key,), _text)

    def assign(self, wishes: Sequence[str]) -> Call[list[Addressee | None]]:
        """To whom deliveries go: for each the key of a recipient, '' for any; None where there is nobody."""
        keys = (self._keys.recipients, self._keys.assigned)
        return Call(script("assign"), keys, tuple(wishes), _assigned)

    def split(self, message: str) -> Call[list[str]]:
        """For whom a topic's message is copied: a state, and keys of recipients."""
        keys = (self._keys.recipients, self._keys.copies)
        return Call(script("split"), keys, (message,), lambda words: list(map(_text, words)))

    def outstanding(self, message: str) -> Call[int]:
        """How many of its copies are not settled."""
        keys = (self._keys.copies, self._work.named("guards"))
        return Call(script("outstanding"), keys, (message,), int)

    def register(self, key: str, entry: str) -> Call[int]:
        """Let a recipient take part: 'weight host port id'."""
        keys = (self._keys.recipients, self._keys.assigned)
        return Call(script("register"), keys, (key, entry), int)

    def lose(self, key: str, address: str) -> Call[int]:
        """A recipient did not answer at this 'host port'."""
        return Call(script("lose"), (self._keys.recipients,), (key, address), int)

    def leave(self, key: str) -> Call[int]:
        """A recipient registered elsewhere."""
        return Call(script("leave"), (self._keys.recipients, self._keys.assigned), (key,), int)

    def recipients(self) -> Call[list[tuple[Addressee, bool, int]]]:
        """All recipients: each with whether it is alive, and its weight."""
        return Call(script("recipients"), (self._keys.recipients,), (), _recipients)

    def peek(self, consumer: ConsumerName, fence: int) -> Call[bytes]:
        """The header of a record that a consumer holds."""
        return Call(script("peek"), (self._work.held(consumer),), (fence,), bytes)


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _entries(reply: RawReply) -> list[IndexEntry | None]:
    return [_entry(_text(entry)) if entry else None for entry in reply]


def _entry(text: str) -> IndexEntry | None:
    _, queue, message, *held = [*text.split(" "), "", ""][:5] if text else ("", "", "")
    if not message:
        return None
    consumer, fence = held
    is_held = bool(consumer) and fence.isdigit()
    return IndexEntry(
        QueueName(queue),
        message,
        ConsumerName(consumer) if is_held else None,
        int(fence) if is_held else 0,
    )


def _assigned(reply: RawReply) -> list[Addressee | None]:
    pairs = zip(map(_text, reply[::2]), map(_text, reply[1::2]), strict=True)
    return [_addressee(key, address) if key else None for key, address in pairs]


def _addressee(key: str, address: str) -> Addressee | None:
    """'host port id'; None for what another program wrote: there is nobody to reach."""
    host, _, rest = address.partition(" ")
    port, space, recipient = rest.partition(" ")
    number = parse_whole(port.encode(), most=HIGHEST_PORT)
    return Addressee(key, host, number, recipient) if host and space and number else None


def _recipients(reply: RawReply) -> list[tuple[Addressee, bool, int]]:
    found = []
    for key, entry in zip(map(_text, reply[::2]), map(_text, reply[1::2]), strict=True):
        status, _, rest = entry.partition(" ")
        weight, _, address = rest.partition(" ")
        addressee, number = _addressee(key, address), parse_whole(weight.encode())
        if addressee is not None and number is not None:
            found.append((addressee, status == "alive", number))
    return found


def guard_of_message(msgid: str) -> Guard:
    """Of a message: its msgid is taken until it is settled."""
    return unique_guard(msgid, GuardMode.UNTIL_SETTLED)


def guard_of_copy(copy: MessageId) -> Guard:
    """Of a topic's copy, which is stored once, however often its message is split."""
    return chosen_id_guard(copy)
