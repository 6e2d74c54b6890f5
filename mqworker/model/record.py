"""The record: how a message is stored. A text header of fixed fields, then the body untouched.

    position  1-13    enqueued at, milliseconds of the server's clock
              14      priority, 0 to 9
              15      guard mode, a letter of GuardMode or '-'
              16      'd' when a deadline follows, else '-'
              17      max crashes, one base-36 digit, or '-' for no limit
              18-20   deliveries so far      21-23  failures      24-25  crashes
              26-     id, task, [guard key], [deadline ms], each followed by one space; then the body

Text rather than msgpack, because Lua edits it (a retry counts up in place) and because it can be read in
`redis-cli`. The Lua side is store/scripts/parts/record.lua; tests/redis/test_record.py keeps the two in step.
"""

from mqworker.errors import InvalidMessage
from mqworker.model.delivery import Delivery
from mqworker.model.message import Message
from mqworker.model.names import MessageId, TaskName

_HEADER = 25
_PLAIN_AND_NEW = b"0--300000000"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def plain_record_tail(message: Message) -> bytes:
    """The record of a plain message without its first 13 characters, which the server's clock supplies."""
    return b"0--%b00000000%b %b %b" % (
        crash_digit(message.max_crashes).encode(),
        message.id.encode(),
        message.task.encode(),
        message.body,
    )


def crash_digit(max_crashes: int | None) -> str:
    """The limit of crashes as it stands in the record."""
    return "-" if max_crashes is None else _DIGITS[max_crashes]


def decode_record(record: bytes, fence: int) -> Delivery:
    """A record that was claimed under a fence, as a delivery. Raises `InvalidMessage` for foreign bytes."""
    try:
        if record[13:_HEADER] == _PLAIN_AND_NEW:  # nearly all of them: nothing to look at twice
            message, task, body = record[_HEADER:].split(b" ", 2)
            return Delivery(
                fence,
                MessageId(message.decode("ascii")),
                TaskName(task.decode("ascii")),
                body,
                int(record[:13]),
            )
        has_guard, has_deadline = record[14:15] != b"-", record[15:16] == b"d"
        fields = record[_HEADER:].split(b" ", 2 + has_guard + has_deadline)
        return Delivery(
            fence=fence,
            id=MessageId(fields[0].decode("ascii")),
            task=TaskName(fields[1].decode("ascii")),
            body=fields[2 + has_guard + has_deadline],
            enqueued_at_ms=int(record[:13]),
            priority=int(record[13:14]),
            deliveries=int(record[17:20]),
            failures=int(record[20:23]),
            crashes=int(record[23:_HEADER]),
            max_crashes=None if record[16:17] == b"-" else int(record[16:17], 36),
            deadline_at_ms=int(fields[2 + has_guard]) if has_deadline else None,
        )
    except (ValueError, IndexError) as error:
        raise InvalidMessage(f"{len(record)} bytes in the queue are not a record: {record[:40]!r}") from error
