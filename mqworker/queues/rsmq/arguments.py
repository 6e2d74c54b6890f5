"""What RSMQ accepts, checked before anything is sent, and its errors.

Names and messages of the errors are those of its Node.js client.
"""

from __future__ import annotations

import re

from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue
from mqworker.model.names import shown


class RsmqError(MqworkerError):
    """A refusal in the words of RSMQ: `name` for programs, `message` for people, and what was given."""

    def __init__(self, name: str, message: str, detail: str = "") -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.name = name
        self.message = message


class RsmqInvalidArgument(RsmqError, InvalidArgument):
    """Mend the call: a parameter is missing or outside what RSMQ accepts. Nothing was written."""


class RsmqQueueNotFound(RsmqError, UnknownQueue):
    """Create the queue first: it does not exist, or a foreign client left it half made."""


def refusal(name: str, queue: str) -> RsmqError:
    """The error for a name that a script answered."""
    match name:
        case "queueNotFound":
            return RsmqQueueNotFound(name, "Queue not found", f"qname is {queue!r}")
        case "queueExists":
            return RsmqError(name, "Queue exists", f"qname is {queue!r}")
        case "messageTooLong":
            return RsmqInvalidArgument(name, "Message too long", f"see maxsize of queue {queue!r}")
        case _:
            raise AssertionError(f"no script answers {name!r}")


LONGEST_SECONDS = 9_999_999
SMALLEST_MAXSIZE, LARGEST_MAXSIZE, NO_MAXSIZE = 1024, 65_536, -1

DEFAULT_VT = 30
DEFAULT_DELAY = 0
DEFAULT_MAXSIZE = LARGEST_MAXSIZE

_QUEUE = re.compile(r"[A-Za-z0-9_-]{1,160}", re.ASCII)
_ID = re.compile(r"[A-Za-z0-9:]{32}", re.ASCII)
_NAMESPACE = re.compile(r"[A-Za-z0-9_.:-]{1,64}|\{[A-Za-z0-9_.:-]{1,64}\}", re.ASCII)
_WHOLE = re.compile(r"-?[0-9]{1,12}", re.ASCII)

# The set of all queues has this name: a queue called so would overwrite it.
_TAKEN = "QUEUES"


def queue_name(value: object) -> str:
    """A queue's name."""
    name = _matching("qname", value, _QUEUE)
    if name == _TAKEN:
        raise RsmqInvalidArgument("invalidFormat", "Invalid qname format", f"{_TAKEN} is the list of queues")
    return name


def message_id(value: object) -> str:
    """The id of a message."""
    return _matching("id", value, _ID)


def namespace(value: object) -> str:
    """What all keys begin with; in braces, so that a cluster keeps the queues together."""
    return _matching("ns", value, _NAMESPACE)


def seconds(item: str, value: object) -> int:
    """A vt or a delay."""
    number = _whole(value)
    if number is None or not 0 <= number <= LONGEST_SECONDS:
        raise _outside(item, value, 0, LONGEST_SECONDS)
    return number


def maxsize(value: object) -> int:
    """The largest message of a queue; -1 for any size."""
    number = _whole(value)
    if number is None or not (SMALLEST_MAXSIZE <= number <= LARGEST_MAXSIZE or number == NO_MAXSIZE):
        raise _outside("maxsize", value, SMALLEST_MAXSIZE, LARGEST_MAXSIZE)
    return number


def message_bytes(value: object) -> bytes:
    """A message; text becomes UTF-8, bytes stay as they are."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise RsmqInvalidArgument("messageNotString", "Message must be a string", str(error)) from error
    raise RsmqInvalidArgument("messageNotString", "Message must be a string", f"it is {shown(value)}")


def _matching(item: str, value: object, pattern: re.Pattern[str]) -> str:
    if value is None or value == "":
        raise RsmqInvalidArgument("missingParameter", f"No {item} supplied")
    if isinstance(value, str) and pattern.fullmatch(value):
        return value
    raise RsmqInvalidArgument("invalidFormat", f"Invalid {item} format", f"{item} is {shown(value)}")


def _whole(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else None


def _outside(item: str, value: object, least: int, most: int) -> RsmqInvalidArgument:
    text = f"{item} must be between {least} and {most}"
    return RsmqInvalidArgument("invalidValue", text, f"it is {shown(value)}")
