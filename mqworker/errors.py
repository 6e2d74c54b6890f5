"""The errors of mqworker: one family, each named for what the caller can do about it.

`MqworkerError` catches them all. The text of an error names the setting or argument, what was given and
what is accepted; facts a program may want stand in attributes.
"""


class MqworkerError(Exception):
    """Root of every error that mqworker raises on purpose."""


class ConfigurationError(MqworkerError):
    """Stop and mend the configuration: a setting, a URL or the server itself does not fit."""


class InvalidArgument(MqworkerError, ValueError):
    """Mend the call: an argument is outside what is accepted. Nothing was written."""


class InvalidMessage(MqworkerError):
    """Bury the message: its bytes are not an envelope this version can read."""


class StoreUnavailable(MqworkerError):
    """Try again later: Redis did not answer, is loading, or is no longer the primary.

    `maybe_executed` is False when the commands surely did not run, and True when nobody can know.
    """

    def __init__(self, text: str, *, maybe_executed: bool = True) -> None:
        super().__init__(text)
        self.maybe_executed = maybe_executed


class StoreFull(MqworkerError):
    """Try again later: Redis reached its memory limit and refuses what adds to it. Nothing was written."""


class StoreRefused(MqworkerError):
    """Ask the operator: Redis refused the command (permission, foreign key type, unknown command)."""


class QueueFull(MqworkerError):
    """Try again later or drop: the queue reached its length limit. Nothing was written."""


class UnknownQueue(MqworkerError):
    """Mend the name or push first: no queue of this name was ever used."""


class LeaseLost(MqworkerError):
    """Drop the work: the delivery was given to somebody else, or was settled already."""
