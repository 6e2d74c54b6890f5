"""The record: how a message is stored. A text header of fixed fields, then the body untouched.

    position  1-13    enqueued at, milliseconds of the server's clock
              14      priority, 0 to 9
              15      guard mode, a letter of GuardMode or '-'; a capital, or P, once it has spawned others
              16      'd' when a deadline follows, 'l' limits, 'b' both, else '-'; with a batch key D, L, B, k
              17      max crashes, one base-36 digit, or '-' for no limit
              18-20   deliveries so far      21-23  failures
              24      losses, a base-36 digit up to p (25); A (0) to Z (25) while it runs on probation: alone
                      in its worker, and given up if its consumer vanishes once more
              25      crashes, a base-36 digit; S for none, but it is a suspect: it ran beside others when
                      their worker died. A to M: these were of its batch, and it runs with 1, 2, 3 to 13
                      times doubled of them next time, and with nothing else (decision 41)
              26-     id, task, [guard key], [deadline ms], [limits], [batch key], each and one space; then
                      the body

Before the limits stands the permit, if any, and a ';': `admitted at ms+valid for ms` in the ready line,
`valid for ms` since it was claimed.

Text rather than msgpack, because Lua edits it (a retry counts up in place) and because it can be read in
`redis-cli`. The Lua side is queues/work/scripts/parts/record.lua;
tests/redis/test_record.py keeps the two in step.
"""

import re
from collections.abc import Iterable

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.message import Message
from mqworker.model.names import MOST_CRASHES, MessageId, TaskName

# The same as `is_record` of record.lua: what one side takes for a record, the other must be able to handle.
_ID_AND_TASK = rb"([A-Za-z0-9_.:@/+=~-]+) ([A-Za-z0-9_.-]+) "
_PLAIN_AND_NEW = b"0--300000000"
_PARTS = 3
"""Of a plain record: header and id, task, body."""
_ANY = re.compile(
    rb"([0-9]{13})([0-9])(?:-|([irwtlmnIRWTLNP]))(?:-|(d)|(b)|(l)|(D)|(B)|(L)|(k))([0-9A-Za-z-])"
    rb"([0-9]{3})([0-9]{3})([0-9a-pA-Z])([0-9a-zA-MS])"
    + _ID_AND_TASK
    + rb"(?(3)[!-~]+ )(?(4)([0-9]{1,15}) )(?(5)([0-9]{1,15}) [!-~]+ )(?(6)[!-~]+ )"
    + rb"(?(7)([0-9]{1,15}) [!-~]+ )(?(8)([0-9]{1,15}) [!-~]+ [!-~]+ )(?(9)[!-~]+ [!-~]+ )(?(10)[!-~]+ )"
)
_SEEN_TASKS: dict[bytes, TaskName] = {}
"""Names that were found to follow the rule; bounded, for strangers may write what they like."""
_MOST_SEEN_TASKS = 10_000
LARGEST_RECORD_BYTES = 16 * 1024 * 1024
"""Sixteen times what a body may have; two fit into a frame. What is longer was written by a stranger."""
ID_AT = 25
"""Where the id begins, from 0."""
_GUARD_AT, _EXTRAS = 14, slice(15, 16)
_LIMITED = frozenset((b"l", b"b", b"L", b"B"))
_WITH_DEADLINE = frozenset((b"d", b"b", b"D", b"B"))
_KEYED = frozenset((b"k", b"D", b"L", b"B"))
_PERMIT = re.compile(rb"([0-9]{1,9});")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_SUSPICIONS = b"SABCDEFGHIJKLM"
"""A suspect alone, or in a batch of at most 2, 4 … 8,192."""
UNMARKED = b"00"
"""Characters 24 and 25 of nearly all records: never lost, never crashed, under no suspicion."""


def plain_record_tail(message: Message) -> bytes:
    """The record of a plain message without its first 13 characters, which the server's clock supplies."""
    if message.batch_key is not None:
        text = (
            f"0-k{crash_digit(message.max_crashes)}00000000{message.id} {message.task} {message.batch_key} "
        )
        return text.encode() + message.body
    return b"0--%b00000000%b %b %b" % (
        crash_digit(message.max_crashes).encode(),
        message.id.encode(),
        message.task.encode(),
        message.body,
    )


def suspicion_mark(most: int) -> str:
    """How a suspicion stands in a record: of one that runs in batches of so many, 1 for alone."""
    return chr(_SUSPICIONS[min(most.bit_length(), len(_SUSPICIONS)) - 1])


def crash_digit(max_crashes: int | None) -> str:
    """The limit of crashes as it stands in the record."""
    return "-" if max_crashes is None else _DIGITS[max_crashes]


def encode_delivery(delivery: Delivery) -> bytes:
    """A delivery of another queue model as a record, so that it travels to a worker like any other."""
    deadline = delivery.deadline_at_ms
    crashes = _DIGITS[min(delivery.crashes, MOST_CRASHES)]
    counts = f"{min(delivery.deliveries, 999):03}{min(delivery.failures, 999):03}0{crashes}"
    head = (
        f"{delivery.enqueued_at_ms:013}{delivery.priority}-{'-' if deadline is None else 'd'}"
        f"{crash_digit(delivery.max_crashes)}{counts}{delivery.id} {delivery.task} "
        f"{'' if deadline is None else f'{deadline} '}"
    )
    return head.encode() + (delivery.sealed or delivery.body)


def decode_record(record: bytes, fence: int) -> Delivery:
    """A record that was claimed under a fence, as a delivery. Raises `InvalidMessage` for foreign bytes."""
    if record[13:25] == _PLAIN_AND_NEW:  # nearly all of them: the rest of the grammar, in fewer steps
        parts = record.split(b" ", 2)
        seen = _SEEN_TASKS.get(parts[1]) if len(parts) == _PARTS else None
        if seen is not None:
            stamp, message = parts[0][:13], parts[0][25:]
            if message.isalnum() and stamp.isdigit():
                return Delivery(fence, MessageId(message.decode()), seen, parts[2], int(stamp))
    header = _ANY.match(record)
    if not header:
        raise InvalidMessage(f"{len(record)} bytes in the queue are not a record: {record[:40]!r}")
    at_ms, priority, *_, max_crashes, deliveries, failures, losses, crashes, message, task = header.groups()[
        :17
    ]
    deadline = next((each for each in header.groups()[17:] if each is not None), None)
    if len(_SEEN_TASKS) < _MOST_SEEN_TASKS:
        _SEEN_TASKS[task] = TaskName(task.decode())
    return Delivery(
        fence=fence,
        id=MessageId(message.decode()),
        task=TaskName(task.decode()),
        body=record[header.end() :],
        enqueued_at_ms=int(at_ms),
        priority=int(priority),
        deliveries=int(deliveries),
        failures=int(failures),
        crashes=0 if crashes in _SUSPICIONS else int(crashes, 36),
        max_crashes=None if max_crashes == b"-" else int(max_crashes, 36),
        deadline_at_ms=None if deadline is None else int(deadline),
        losses=_losses(losses),
        is_suspect=crashes in _SUSPICIONS,
    )


def must_run_alone(record: bytes) -> bool:
    """Whether a worker died while it ran there, alone or beside others: next time nothing runs beside it."""
    return record[24:25] != b"0"


def losses_of(record: bytes) -> int:
    """How often its consumer vanished with it, since it ended last."""
    return _losses(record[23:24])


def is_on_probation(record: bytes) -> bool:
    """Whether it is given up if its consumer vanishes once more (begin_probation.lua)."""
    return record[23:24].isupper()


def _losses(letter: bytes) -> int:
    if letter.isupper():
        return letter[0] - ord("A")
    return int(letter, 36) if letter.isalnum() else 0  # foreign bytes, which will be buried


def id_of(record: bytes) -> bytes:
    """The message's id in a record, without reading the rest of it."""
    return record[ID_AT:].partition(b" ")[0]


def task_of(record: bytes) -> bytes:
    """The task's name in a record, without reading the rest of it."""
    parts = record.split(b" ", 2)
    return parts[1] if len(parts) > 1 else b""


def are_any_limited(records: Iterable[bytes]) -> bool:
    """Whether some of them need a permit to start."""
    return not _LIMITED.isdisjoint({record[_EXTRAS] for record in records})


def permit_ms_of(record: bytes) -> int | None:
    """For how long since it was claimed a limited message may start; None when it needs no permit."""
    extras = record[_EXTRAS]
    if extras not in _LIMITED:
        return None
    before = 2 + (record[_GUARD_AT : _GUARD_AT + 1] != b"-") + (extras in _WITH_DEADLINE)
    fields = record.split(b" ", before + 1)
    found = _PERMIT.match(fields[before]) if len(fields) > before else None
    return None if found is None else int(found[1])


def limits_of(record: bytes) -> str:
    """The limits that stand in a record, as text, without permit and costs; '' when it has none."""
    extras = record[_EXTRAS]
    if extras not in _LIMITED:
        return ""
    before = 2 + (record[_GUARD_AT : _GUARD_AT + 1] != b"-") + (extras in _WITH_DEADLINE)
    fields = record.split(b" ", before + 1)
    text = fields[before].decode(errors="replace") if len(fields) > before + 1 else ""
    return text.rpartition(";")[2].partition("&")[0]


def most_together(record: bytes) -> int:
    """In batches of how many it may run after a worker died over it; 0: nobody died, any number."""
    mark = record[24:25]
    if mark == b"0":
        return 0
    return 1 << max(0, _SUSPICIONS.find(mark))


def has_deadline(record: bytes) -> bool:
    """Whether it is not to be started after some instant."""
    return record[_EXTRAS] in _WITH_DEADLINE


def batch_key_of(record: bytes) -> bytes | None:
    """With whose calls a message runs together; None where it does not say."""
    extras = record[_EXTRAS]
    if extras not in _KEYED:
        return None
    before = (
        2 + (record[_GUARD_AT : _GUARD_AT + 1] != b"-") + (extras in _WITH_DEADLINE) + (extras in _LIMITED)
    )
    fields = record.split(b" ", before + 1)
    return fields[before] if len(fields) > before + 1 else None


def is_record_of(record: bytes, message: bytes) -> bool:
    """Whether a record is that of a message, without reading the rest of it."""
    return record.startswith(message + b" ", 25)
