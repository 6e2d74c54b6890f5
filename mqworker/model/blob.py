"""Blobs: payloads that are kept elsewhere. What stands in Redis is a reference: name, size and digest.

A blob's name tells whose it is, `namespace/queue/kind.id.random`, so that a sweep can ask the queue whether
anybody still needs it, without opening a message.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote, unquote

import msgpack

from mqworker.errors import InvalidMessage
from mqworker.model.keyring import SEALED

Kind = Literal["arguments", "result"]
REFERENCE = SEALED + b"r"

_LETTER_BY_KIND: dict[Kind, str] = {"arguments": "a", "result": "r"}
_KIND_BY_LETTER = {letter: kind for kind, letter in _LETTER_BY_KIND.items()}
_PARTS = 3
_SLASH = "!"
"""Stands for the slash of an id, in which it cannot occur."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Where a payload is, and how to know that it is the right one."""

    name: str
    size: int
    digest: bytes

    def encoded(self) -> bytes:
        """As it stands in the place of the payload."""
        packed: bytes = msgpack.packb([self.name, self.size, self.digest])
        return REFERENCE + packed

    def is_of(self, payload: bytes) -> bool:
        """Whether it means these bytes."""
        return len(payload) == self.size and digest_of(payload) == self.digest


@dataclass(frozen=True, slots=True)
class Owner:
    """The message that needs a blob."""

    namespace: str
    queue: str
    kind: Kind
    id: str

    @property
    def workflow(self) -> str | None:
        """The workflow of which it is a member: others of it may need the blob, too."""
        flow, tilde, _ = self.id.partition("~")
        return flow if tilde else None


def is_reference(payload: bytes) -> bool:
    """Whether it only says where the payload is."""
    return payload[:2] == REFERENCE


def reference_in(payload: bytes) -> Reference:
    """The reference; raises `InvalidMessage` for anything else."""
    try:
        name, size, digest = msgpack.unpackb(payload[len(REFERENCE) :])
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise InvalidMessage(f"a reference to a payload cannot be read: {error!r}") from error
    if not (isinstance(name, str) and type(size) is int and isinstance(digest, bytes)):
        raise InvalidMessage("a reference to a payload does not hold what it should")
    owner_of(name)
    return Reference(name, size, digest)


def digest_of(payload: bytes) -> bytes:
    """By which a payload is recognised."""
    return hashlib.sha256(payload).digest()


def new_name(owner: Owner) -> str:
    """A name for a blob of this owner; no two are the same."""
    plain_id = owner.id.replace("/", _SLASH)
    letter = _LETTER_BY_KIND[owner.kind]
    return f"{owner.namespace}/{quote(owner.queue, safe='')}/{letter}.{plain_id}.{secrets.token_hex(8)}"


def owner_of(name: str) -> Owner:
    """Whose blob it is; raises `InvalidMessage` for a name that `new_name` cannot have made."""
    parts = name.split("/")
    # A name comes out of a message, and becomes a path: nothing in it may lead elsewhere.
    if len(parts) != _PARTS or not all(part.strip(".") and part.isprintable() for part in parts):
        raise InvalidMessage(f"{name[:200]!r} is not the name of a payload")
    letter, _, rest = parts[2].partition(".")
    id_, _, chance = rest.rpartition(".")
    if letter not in _KIND_BY_LETTER or not id_ or not chance or "\\" in name:
        raise InvalidMessage(f"{name[:200]!r} is not the name of a payload")
    return Owner(parts[0], unquote(parts[1]), _KIND_BY_LETTER[letter], id_.replace(_SLASH, "/"))
