"""Seal: signs or encrypts what travels through Redis, and opens it where it is used.

Each payload is bound to its place: to the namespace, and to queue, task and id of a call, queue and id of a
result. A payload that stands anywhere else does not verify. What scripts change is not covered: counts,
priority, deadline, limits; they say when and how often something runs, never what.
"""

from __future__ import annotations

from typing import TypeVar

from mqworker.errors import NotVerified
from mqworker.model.assembled_call import Grant, grant_of
from mqworker.model.keyring import EVERY_QUEUE, Keyring, OneOfMany, is_sealed

_MOST_REMEMBERED = 10_000
PlaceT = TypeVar("PlaceT")


class Seal:
    """Seals and opens the payloads of one namespace. Safe between threads and across forks."""

    def __init__(self, keyring: Keyring, namespace: str) -> None:
        self._keyring = keyring
        self._newest = keyring.newest
        self._head, self._head_bytes = keyring.newest.head, len(keyring.newest.head)
        self._space = namespace.encode() + b"\0"
        # By queue and task, for the newest key: nearly everything that is ever sealed or opened.
        self._close_by_task: dict[tuple[str, str], OneOfMany] = {}
        self._open_by_task: dict[tuple[str, str], OneOfMany] = {}
        self._close_by_queue: dict[str, OneOfMany] = {}
        self._accepts_all = EVERY_QUEUE in keyring.accept_unsigned

    def close_call(self, queue: str, task: str, message: str, body: bytes) -> bytes:
        """The body of a call, sealed for this message alone."""
        close = self._close_by_task.get((queue, task))
        if close is None:
            close = self._newest.closing(self._context(b"call", queue, task))
            _remember(self._close_by_task, (queue, task), close)
        return close(message.encode() + b"\0", body)

    def open_call(self, queue: str, task: str, message: str, body: bytes) -> bytes:
        """The body of a call, as its producer made it; raises `NotVerified`."""
        if body[: self._head_bytes] == self._head:
            open_ = self._open_by_task.get((queue, task))
            if open_ is None:
                open_ = self._newest.opening(self._context(b"call", queue, task))
                _remember(self._open_by_task, (queue, task), open_)
            return open_(message.encode() + b"\0", body)
        if not is_sealed(body):
            return self._unsigned(queue, body)
        return self._keyring.key_of(body).open(self._context(b"call", queue, task, message), body)

    def close_grant(self, queue: str, task: str, grant: Grant) -> bytes:
        """A call that a broker may make later."""
        return self._newest.close(self._context(b"grant", queue, task), grant.packed())

    def open_grant(self, queue: str, task: str, sealed: bytes) -> Grant:
        """The grant as its producer made it; raises `NotVerified`."""
        payload = self._keyring.key_of(sealed).open(self._context(b"grant", queue, task), sealed)
        return grant_of(payload)

    def close_value(self, place: list[str], payload: bytes) -> bytes:
        """A value for a place, such as `["result", queue, id]` or `["event", topic, id]`."""
        return self._newest.close(self._context(*place), payload)

    def open_value(self, place: list[str], sealed: bytes, queue: str) -> bytes:
        """The value of that place, used in a queue; raises `NotVerified`."""
        if not is_sealed(sealed):
            return self._unsigned(queue, sealed)
        return self._keyring.key_of(sealed).open(self._context(*place), sealed)

    def close_result(self, queue: str, message: str, result: bytes) -> bytes:
        """`close_value` for results, of which there is one for each run."""
        close = self._close_by_queue.get(queue)
        if close is None:
            close = self._newest.closing(self._context(b"result", queue))
            _remember(self._close_by_queue, queue, close)
        return close(message.encode() + b"\0", result)

    def _context(self, purpose: str | bytes, *parts: str) -> bytes:
        # No name holds a zero byte, so that no two places have the same bytes.
        first = purpose if isinstance(purpose, bytes) else purpose.encode()
        return first + b"\0" + self._space + b"".join(part.encode() + b"\0" for part in parts)

    def _unsigned(self, queue: str, payload: bytes) -> bytes:
        if self._accepts_all or queue in self._keyring.accept_unsigned:
            return payload
        raise NotVerified(
            f"it is not signed; queue {queue} is not among those of accept_unsigned, and keys are set"
        )


def _remember(known: dict[PlaceT, OneOfMany], place: PlaceT, seals: OneOfMany) -> None:
    if len(known) >= _MOST_REMEMBERED:  # strangers may write any name into a record
        known.clear()
    known[place] = seals
