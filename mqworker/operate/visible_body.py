"""The body of a message as whoever has no keys can see it: what is signed is read, not verified.

Commands and the console never open anything: what is encrypted they call so.
"""

from __future__ import annotations

from mqworker.errors import InvalidMessage, NotVerified
from mqworker.model.assembled_call import UNSEALED_GRANT, grant_of, is_assembled, parts_of_assembled
from mqworker.model.blob import is_reference
from mqworker.model.envelope import Envelope, decode_call
from mqworker.model.keyring import SEALED, is_encrypted, peeled

ENCRYPTED = "encrypted"
SIGNED = "signed"
OFFLOADED = "offloaded"
"""Kept elsewhere, for its size."""


class BodyHidden(Exception):  # never leaves the views: they show the word in the place of the value
    """The value is not here to be shown. The text is a word for it."""


def visible_body(body: bytes) -> bytes:
    """The encoded call; raises `BodyHidden`, or `InvalidMessage` where it cannot be read."""
    if is_assembled(body):
        try:
            grant, _ = parts_of_assembled(body)
        except NotVerified as error:
            raise InvalidMessage(str(error)) from error
        return visible_value(grant_of(visible_value(grant).removeprefix(UNSEALED_GRANT)).body)
    return visible_value(body)


def visible_value(stored: bytes) -> bytes:
    """A packed value; raises `BodyHidden`."""
    if is_encrypted(stored):
        raise BodyHidden(ENCRYPTED)
    payload = peeled(stored)
    if is_reference(payload):
        raise BodyHidden(OFFLOADED)
    return payload


def visible_call(body: bytes) -> Envelope:
    """The call in a body; raises as above."""
    return decode_call(visible_body(body))


def kept_as(body: bytes) -> str:
    """A word for how a body is stored, empty where that is usual."""
    if body[:1] != SEALED:
        return ""
    try:
        visible_body(body)
    except BodyHidden as hidden:
        return str(hidden)
    except InvalidMessage:
        return ""
    return SIGNED
