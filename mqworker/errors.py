"""The errors of mqworker: one family, each named for what the caller can do about it.

`MqworkerError` catches them all. The text of an error names the setting or argument, what was given and
what is accepted; facts a program may want stand in attributes. Each class has a code (`code_of`) that never
changes: commands print it, and `mqworker explain CODE` and a page tell more (`cli/errors.md`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


class MqworkerError(Exception):
    """Root of every error that mqworker raises on purpose."""


def code_of(kind: type[MqworkerError]) -> str:
    """The code of an error: its name in small letters, `queue-full` for `QueueFull`."""
    if kind is MqworkerError:
        return "not-possible"
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


class ConfigurationError(MqworkerError):
    """Stop and mend the configuration: a setting, a URL or the server itself does not fit."""


class InvalidArgument(MqworkerError, ValueError):
    """Mend the call: an argument is outside what is accepted. Nothing was written."""


class InvalidMessage(MqworkerError):
    """Bury the message: its bytes are not an envelope this version can read."""


class NotVerified(InvalidMessage):
    """Do not believe it: it was not signed or encrypted by a key of ours, for this place."""


class KeyUnknown(NotVerified):
    """Give this process the key, or wait for one that has it: what was sealed by it cannot be opened here."""


class PayloadMissing(MqworkerError):
    """Look for it, or enqueue anew: a payload that is kept elsewhere is not there, or is another one."""


class PayloadUnavailable(MqworkerError):
    """Try again later: the place where large payloads are kept does not answer."""


class StoreUnavailable(MqworkerError):
    """Try again later: Redis did not answer, is loading, or is no longer the primary.

    `maybe_executed` is False when the commands surely did not run, and True when nobody can know.
    """

    def __init__(self, text: str, *, maybe_executed: bool = True) -> None:
        super().__init__(text)
        self.maybe_executed = maybe_executed


class StaleCall(MqworkerError):
    """Drop it: a later call of the same lane was answered, so this one was answered before or given up.

    This copy of it changed nothing. What its first copy did is known to whoever got the answer.
    """


class StoreFull(MqworkerError):
    """Try again later: Redis reached its memory limit and refuses what adds to it. Nothing was written."""


class StoreRefused(MqworkerError):
    """Ask the operator: Redis refused the command (permission, foreign key type, unknown command).

    `code` is the first word of the server's reply, such as WRONGTYPE, or empty when it was not a reply.
    `is_about_data` tells that another program wrote something into the keys of a queue: the server is fine.
    """

    def __init__(self, text: str, *, code: str = "") -> None:
        super().__init__(text)
        self.code = code
        self.is_about_data = code in {"WRONGTYPE", "UNREADABLE", "ERR"}


class QueueFull(MqworkerError):
    """Try again later or drop: the queue reached its length limit. Nothing was written."""


class UnknownQueue(MqworkerError):
    """Mend the name or push first: no queue of this name was ever used."""


class NotSupported(MqworkerError):
    """Use a queue of another model: the one that was asked has no place for this. Nothing was written."""


class LeaseLost(MqworkerError):
    """Drop the work: the delivery was given to somebody else, or was settled already."""


# What became of a job: raised by `job.result()`, `aresult()` and by tasks that run.


class UnknownTask(MqworkerError):
    """Deploy the task or mend its name: no task of this name is registered here."""


class TaskFailed(MqworkerError):
    """Look at the cause: the task failed for good. What it raised stands here as data, never as an object."""

    def __init__(self, text: str, *, reason: str, error: str, message: str, traceback: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.error = error
        self.message = message
        self.traceback = traceback


class LifespanFailed(MqworkerError):
    """Look at the cause: what the application opens at the start of a worker could not be opened.

    The worker is tried again after pauses that grow; the node says that it is degraded, and why.
    """


class DidNotYield(MqworkerError):
    """Mend the provider: a generator that is to yield once came to its end without it."""


class StillRunning(MqworkerError):
    """Wait, or cancel with kill=True: the task was asked to stop and has not stopped in time."""


class TaskCancelled(MqworkerError):
    """Drop the result: the job was cancelled. Raised inside a task, it ends a run that was asked to stop."""


class TaskExpired(MqworkerError):
    """Enqueue again if it still matters: the deadline passed before the task could start."""


class TaskTimeout(MqworkerError, TimeoutError):
    """Tidy up and end: the task ran longer than its time-out allows. Raised inside the task."""


class RateLimited(MqworkerError):
    """Raise it in a task that was told to come later, as by HTTP 429: nothing of its key starts until then.

    The message waits again, uncounted. `key` is a template of the task's arguments that one of its limits
    has; without it the only key of its limits is meant, or the task as a whole. A task without limits is
    delayed alone.
    """

    def __init__(self, text: str = "", *, retry_after: float, key: str | None = None) -> None:
        super().__init__(text or f"to be tried again after {retry_after:g} s")
        self.retry_after = retry_after
        self.key = key


class BatchFailed(MqworkerError):
    """Raise it in a task that takes batches, when some of its rows failed: only these are tried again.

    `errors` says which rows failed, by their places in the list from 0, and of what: each as if a call of its
    own had raised that. All others succeed, with the value of their place in `results`, or with None.
    """

    def __init__(self, errors: Mapping[int, Exception], results: Sequence[object] | None = None) -> None:
        given: object = errors
        entries: Mapping[object, object] = given if isinstance(given, Mapping) else {}
        if not entries:
            raise InvalidArgument(
                f"errors is {errors!r:.100}; accepted is a dict of row to exception, with one row at least"
            )
        for row, error in entries.items():
            if isinstance(row, bool) or not isinstance(row, int) or row < 0:
                raise InvalidArgument(
                    f"errors has the row {row!r:.100}; accepted are places in the list, from 0"
                )
            if not isinstance(error, Exception):
                raise InvalidArgument(f"the error of row {row} is {error!r:.100}; accepted are exceptions")
        super().__init__(
            f"{len(errors):,} rows failed, the first of them with {next(iter(errors.values()))!r:.200}"
        )
        self.errors = dict(errors)
        self.results = results


class ResultTimeout(MqworkerError, TimeoutError):
    """Wait again or give up: the job did not end in the time given. It goes on regardless."""


class ResultNotKept(MqworkerError):
    """Do not wait: the job has ended and its result was not kept, or no such job exists."""
