"""Payloads: what is done to arguments, results and progress on their way into Redis, and back.

The one place where they are signed, encrypted or kept elsewhere. An app that does none of this has no
`Payloads`: whoever encodes or decodes asks whether there is one, and that is all it costs.
"""

from __future__ import annotations

from mqworker.errors import InvalidArgument, InvalidMessage, KeyUnknown, NotVerified, PayloadMissing
from mqworker.model.assembled_call import (
    UNSEALED_GRANT,
    Grant,
    Origin,
    called,
    grant_of,
    is_assembled,
    parts_of_assembled,
)
from mqworker.model.blob import (
    Kind,
    Owner,
    Reference,
    digest_of,
    is_reference,
    new_name,
    owner_of,
    reference_in,
)
from mqworker.model.delivery import Delivery
from mqworker.model.keyring import SEALED, Keyring, is_sealed
from mqworker.model.seal import Seal
from mqworker.settings import Settings
from mqworker.tasks.offload.places import Place, place_at

NO_ID = ""
"""In the place of the id where a queue gives its own: in models other than the work queue."""


class Payloads:
    """Closes what is sent and opens what is read. Safe between threads and across forks."""

    def __init__(self, seal: Seal | None, place: Place | None = None, namespace: str = "mqw") -> None:
        self._seal = seal
        self._namespace = namespace
        self.place = place
        """Where large payloads are kept; None: in Redis, like all others."""
        self._has_ids = True

    def without_ids(self) -> Payloads | None:
        """The same for a queue that gives its messages ids of its own, which a producer cannot know.

        Nothing is offloaded there: by its id a sweep finds out whether a message still needs its blob.
        """
        if self._seal is None:
            return None
        other = Payloads(self._seal, namespace=self._namespace)
        other._has_ids = False
        return other

    def without_offload(self) -> Payloads | None:
        """The same where every payload stays in its message."""
        return None if self._seal is None else Payloads(self._seal, namespace=self._namespace)

    def most_bytes(self, usual: int) -> int:
        """How large a payload may be, where usually so many bytes are accepted."""
        return usual if self.place is None else max(usual, self.place.most)

    def close_message(self, queue: str, task: str, message: str, body: bytes, origin: Origin | None) -> bytes:
        """The body of a call as it is stored; with an origin, of one that a broker makes later."""
        if not self._has_ids:
            message = NO_ID
        # Of a schedule or a subscription nobody can say when its blob is no longer needed.
        elif origin is None or origin.is_exact:
            body = self._offloaded(queue, "arguments", message if origin is None else origin.prefix, body)
        if origin is not None:
            return self._close_grant(queue, task, Grant(body, origin))
        return body if self._seal is None else self._seal.close_call(queue, task, message, body)

    def open_call(self, queue: str, task: str, message: str, body: bytes) -> bytes:
        """The body of a call as its producer encoded it; raises `NotVerified`, and what `fetched` raises."""
        return self.fetched(self._unsealed_call(queue, task, message, body))

    def open_delivery(self, queue: str, delivery: Delivery, *, has_own_id: bool = True) -> None:
        """Open the body of a delivery in its place; what was stored stays in `sealed`."""
        message = delivery.id if has_own_id else NO_ID
        opened = self._unsealed_call(queue, delivery.task, message, delivery.body)
        if opened[:1] == SEALED and is_reference(opened):
            name = reference_in(opened).name
            opened = self.fetched(opened)
            delivery.offloaded = name
        delivery.sealed, delivery.body = delivery.body, opened

    def close_result(self, queue: str, message: str, result: bytes) -> bytes:
        """A result as it is stored; raises `PayloadUnavailable`."""
        result = self._offloaded(queue, "result", message, result)
        return result if self._seal is None else self._seal.close_result(queue, message, result)

    def open_result(self, queue: str, message: str, stored: bytes) -> bytes:
        """A result as the task returned it; raises `NotVerified`, and what `fetched` raises."""
        return self._open_value(["result", queue, message], stored, queue)

    def close_event(self, topic: str, event: str, payload: bytes) -> bytes:
        """What is published, as it is stored."""
        return payload if self._seal is None else self._seal.close_value(["event", topic, event], payload)

    def close_progress(self, queue: str, message: str, fence: int, text: bytes) -> bytes:
        """How far a delivery has come, as it is stored."""
        place = ["progress", queue, message, str(fence)]
        return text if self._seal is None else self._seal.close_value(place, text)

    def open_progress(self, queue: str, message: str, fence: int, stored: bytes) -> bytes:
        """How far a delivery has come; raises `NotVerified`."""
        return self._open_value(["progress", queue, message, str(fence)], stored, queue)

    def close_note(self, purpose: str, message: str, note: bytes) -> bytes:
        """What somebody keeps beside a message, as it is stored."""
        return note if self._seal is None else self._seal.close_value(["note", purpose, message], note)

    def open_note(self, purpose: str, message: str, stored: bytes) -> bytes:
        """What was kept beside a message; raises `NotVerified`."""
        return self._open_value(["note", purpose, message], stored, NO_ID)

    def fetched(self, payload: bytes) -> bytes:
        """The payload, wherever it is; raises `PayloadMissing`, `PayloadUnavailable`, `NotVerified`."""
        if not is_reference(payload):
            return payload
        reference = reference_in(payload)
        if self.place is None:
            raise PayloadMissing(
                f"the payload {reference.name} is kept elsewhere, and this process does not know where: "
                "set MQWORKER_OFFLOAD"
            )
        if owner_of(reference.name).namespace != self._namespace:
            raise NotVerified(f"the payload {reference.name} is of another namespace")
        blob = self.place.read(reference.name)
        if self._seal is not None and is_sealed(blob):
            blob = self._seal.open_value(["blob", reference.name], blob, NO_ID)
        if not reference.is_of(blob):
            raise PayloadMissing(f"the payload {reference.name} is not what was stored there: it was changed")
        return blob

    def _offloaded(self, queue: str, kind: Kind, message: str, payload: bytes) -> bytes:
        place = self.place
        if place is None or len(payload) <= place.above:
            return payload
        if len(payload) > place.most:
            raise InvalidArgument(f"a payload is {len(payload):,} bytes; accepted are up to {place.most:,}")
        name = new_name(Owner(self._namespace, queue, kind, message))
        blob = payload if self._seal is None else self._seal.close_value(["blob", name], payload)
        place.write(name, blob)
        return Reference(name, len(payload), digest_of(payload)).encoded()

    def _close_grant(self, queue: str, task: str, grant: Grant) -> bytes:
        if self._seal is not None:
            return self._seal.close_grant(queue, task, grant)
        # Its input may be kept elsewhere, too, and only a worker can fetch it.
        may_have_to_fetch = is_reference(grant.body) or (grant.origin.is_exact and grant.origin.source)
        return UNSEALED_GRANT + grant.packed() if may_have_to_fetch else grant.body

    def _unsealed_call(self, queue: str, task: str, message: str, body: bytes) -> bytes:
        if not is_assembled(body):
            if self._seal is not None:
                return self._seal.open_call(queue, task, message, body)
            if is_sealed(body):
                raise without_keys("the call")
            return body
        sealed, first_argument = parts_of_assembled(body)
        grant = self._open_grant(queue, task, sealed)
        if grant.origin.source is not None:
            grant = Grant(self.fetched(grant.body), grant.origin)
        return called(
            grant, message, first_argument, lambda place, value: self._open_value(place, value, queue)
        )

    def _open_grant(self, queue: str, task: str, sealed: bytes) -> Grant:
        if self._seal is not None:
            return self._seal.open_grant(queue, task, sealed)
        if sealed[:2] != UNSEALED_GRANT:
            raise without_keys("the call") if is_sealed(sealed) else InvalidMessage("a call is not a call")
        return grant_of(sealed[len(UNSEALED_GRANT) :])

    def _open_value(self, place: list[str], stored: bytes, queue: str) -> bytes:
        if self._seal is not None:
            stored = self._seal.open_value(place, stored, queue)
        elif is_sealed(stored):
            raise without_keys(f"the {place[0]}")
        return self.fetched(stored)


def payloads_of(
    settings: Settings, keyring: Keyring | None = None, place: Place | None = None
) -> Payloads | None:
    """By these settings, or by what an app was given instead; None where nothing is to be done."""
    if keyring is None and settings.keys is not None:
        keyring = Keyring.from_text(settings.keys, accept_unsigned=settings.accept_unsigned)
    if place is None and settings.offload is not None:
        place = place_at(
            settings.offload, above=settings.offload_above_bytes, grace_s=settings.offload_grace_s
        )
    if keyring is None and place is None:
        return None
    seal = None if keyring is None else Seal(keyring, settings.namespace)
    return Payloads(seal, place, settings.namespace)


def opened_result(payloads: Payloads | None, queue: str, message: str, stored: bytes) -> bytes:
    """The result for its waiter; says so where one without keys asks for a sealed one."""
    if payloads is not None:
        return payloads.open_result(queue, message, stored)
    if is_reference(stored):
        raise PayloadMissing(
            "the result is kept elsewhere, and this process does not know where: set MQWORKER_OFFLOAD"
        )
    if stored[:1] == SEALED:
        raise without_keys("the result")
    return stored


def check_size(task: str, size: int, most: int, payloads: Payloads | None) -> None:
    """Refuse arguments of more bytes than are accepted."""
    accepted = most if payloads is None else payloads.most_bytes(most)
    if size > accepted:
        raise InvalidArgument(
            f"the arguments of {task} are {size:,} bytes; accepted are up to {accepted:,} (the setting "
            "max_message_bytes; larger ones can be kept elsewhere: the setting offload)"
        )


def without_keys(what: str) -> KeyUnknown:
    """The error of a process that was given no keys."""
    return KeyUnknown(f"{what} is signed or encrypted, and this process has no keys: set MQWORKER_KEYS")
