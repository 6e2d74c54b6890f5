"""The errors of RSMQ: the names and messages that its Node.js client made known, in our family."""

from __future__ import annotations

from mqworker.errors import InvalidArgument, MqworkerError, UnknownQueue


class RsmqError(MqworkerError):
    """A refusal in the words of RSMQ: `name` for programs, `message` for people, and what was given."""

    def __init__(self, name: str, message: str, detail: str = "") -> None:
        super().__init__(f"{message} ({detail})" if detail else message)
        self.name = name
        self.message = message


class RsmqInvalidArgument(RsmqError, InvalidArgument):
    """Mend the call: a parameter is missing or outside what RSMQ accepts. Nothing was written."""


class RsmqQueueNotFound(RsmqError, UnknownQueue):
    """Create the queue first: there is none of that name, or a foreign client left it half made."""


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
