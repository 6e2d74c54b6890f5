"""Keyrings: the secrets with which payloads are signed or encrypted, the newest first.

The newest key makes, any key opens: to rotate, put a new key in front and drop an old one when nothing made
with it is left. A key is 32 random bytes with an id, for one purpose: signing (HMAC-SHA-256) or encrypting
(AES-256-GCM, which proves the origin too).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import itertools
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from mqworker.errors import ConfigurationError, InvalidArgument, KeyUnknown, NotVerified

ACCEPTED_KEYS = (
    "keys separated by commas or lines, the newest first, each id:sign:SECRET or id:encrypt:SECRET, where "
    "SECRET is 32 bytes in base64 (`mqworker keys new` makes one)"
)
EVERY_QUEUE = "*"
SECRET_BYTES = 32
SEALED = b"\xc1"
"""The first byte of whatever was sealed, put together or offloaded: msgpack never writes it."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}", re.ASCII)
_SIGNED, _ENCRYPTED = b"s", b"e"
_SEALED_KINDS = frozenset((SEALED + _SIGNED, SEALED + _ENCRYPTED, SEALED + b"c"))
_MAC_BYTES = 16
_BLOCK = 64
_SALT_BYTES, _COUNT_BYTES, _NONCE_BYTES = 12, 6, 12
_MOST_OF_A_SALT = 2**40
_MOST_CIPHERS = 1_000


OneOfMany = Callable[[bytes, bytes], bytes]


class SigningKey:
    """Signs: HMAC-SHA-256, of which the first 128 bits are kept (RFC 4868)."""

    __slots__ = ("_inner", "_outer", "head", "id")

    def __init__(self, id: str, secret: bytes) -> None:  # noqa: A002 - what it is called
        self.id = _checked_id(id)
        self.head = _head(_SIGNED, self.id)
        padded = _checked_secret(id, secret).ljust(_BLOCK, b"\0")
        # What HMAC hashes first is the same for all: hashed once, copied for each. Half of what hmac.digest
        # costs.
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded) + self.head)
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def close(self, context: bytes, payload: bytes) -> bytes:
        """The payload with a signature over it and over the context, which ends with a zero byte."""
        return self.closing(context)(b"", payload)

    def open(self, context: bytes, sealed: bytes) -> bytes:
        """The payload; raises `NotVerified`. `sealed` begins with the key's head."""
        return self.opening(context)(b"", sealed)

    # Written out twice, without a call between: these run for each message, and a call costs a tenth of it.
    def closing(self, prefix: bytes) -> OneOfMany:
        """`close` for many contexts that begin alike: takes the rest of the context, and the payload."""
        copy_inner, copy_outer, head = self._begun(prefix), self._outer.copy, self.head

        def close(rest: bytes, payload: bytes) -> bytes:
            inner, outer = copy_inner(), copy_outer()
            inner.update(rest + payload)
            outer.update(inner.digest())
            return head + outer.digest()[:_MAC_BYTES] + payload

        return close

    def opening(self, prefix: bytes) -> OneOfMany:
        """`open` in the same way."""
        copy_inner, copy_outer, compare = self._begun(prefix), self._outer.copy, hmac.compare_digest
        start, end = len(self.head), len(self.head) + _MAC_BYTES

        def open_(rest: bytes, sealed: bytes) -> bytes:
            payload = sealed[end:]
            inner, outer = copy_inner(), copy_outer()
            inner.update(rest + payload)
            outer.update(inner.digest())
            if not compare(outer.digest()[:_MAC_BYTES], sealed[start:end]):
                raise NotVerified(f"the signature by key {self.id} does not fit")
            return payload

        return open_

    # Any: the type of a hash has no public name.
    def _begun(self, prefix: bytes) -> Callable[[], Any]:
        inner = self._inner.copy()
        inner.update(prefix)
        return inner.copy

    def __repr__(self) -> str:
        """Its id alone."""
        return f"SigningKey({self.id!r})"


class EncryptionKey:
    """Encrypts: AES-256-GCM, by keys that each process derives for itself.

    A nonce must never come twice under one key, and random ones do after some thousand million messages. So
    a process draws a salt, derives a key by it, and counts.
    """

    __slots__ = ("_ciphers", "_make", "_own", "_secret", "head", "id")

    def __init__(self, id: str, secret: bytes) -> None:  # noqa: A002 - what it is called
        self.id = _checked_id(id)
        self.head = _head(_ENCRYPTED, self.id)
        self._secret = _checked_secret(id, secret)
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                f"key {self.id} encrypts, which needs a library: pip install 'mqworker[crypto]'"
            ) from error
        self._make = AESGCM
        self._ciphers: dict[bytes, Any] = {}  # Any: the type of an optional library
        self._own: tuple[int, bytes, Any, Iterator[int]] | None = None

    def close(self, context: bytes, payload: bytes) -> bytes:
        """The payload, encrypted, with a proof over it and over the context."""
        prefix, nonce, cipher = self._next()
        sealed: bytes = prefix + cipher.encrypt(nonce, payload, self.head + context)
        return sealed

    def open(self, context: bytes, sealed: bytes) -> bytes:
        """The payload; raises `NotVerified`. `sealed` begins with the key's head."""
        start = len(self.head)
        salt, count = sealed[start : start + _SALT_BYTES], sealed[start + _SALT_BYTES :][:_COUNT_BYTES]
        text = sealed[start + _SALT_BYTES + _COUNT_BYTES :]
        if len(text) < _MAC_BYTES:
            raise NotVerified(f"what key {self.id} is to open is cut off")
        cipher = self._ciphers.get(salt) or self._cipher(salt)
        try:
            payload: bytes = cipher.decrypt(count.rjust(_NONCE_BYTES, b"\0"), text, self.head + context)
        except Exception as error:  # InvalidTag, of a library that may not be there
            raise NotVerified(f"it was not encrypted by key {self.id}, or was changed since") from error
        return payload

    def closing(self, prefix: bytes) -> OneOfMany:
        """`close` for many contexts that begin alike: takes the rest of the context, and the payload."""
        return lambda rest, payload: self.close(prefix + rest, payload)

    def opening(self, prefix: bytes) -> OneOfMany:
        """`open` in the same way."""
        return lambda rest, sealed: self.open(prefix + rest, sealed)

    def _next(self) -> tuple[bytes, bytes, Any]:
        own = self._own
        if own is None or own[0] != os.getpid():  # the child of a fork must not go on with these counts
            salt = secrets.token_bytes(_SALT_BYTES)
            own = self._own = (os.getpid(), salt, self._cipher(salt), itertools.count())
        count = next(own[3])
        if count >= _MOST_OF_A_SALT:
            self._own = None
        number = count.to_bytes(_COUNT_BYTES, "big")
        return self.head + own[1] + number, number.rjust(_NONCE_BYTES, b"\0"), own[2]

    def _cipher(self, salt: bytes) -> Any:  # noqa: ANN401 - see above
        derived = hmac.digest(self._secret, b"mqworker " + salt, "sha256")
        if len(self._ciphers) >= _MOST_CIPHERS:
            self._ciphers.clear()
        cipher = self._ciphers[salt] = self._make(derived)
        return cipher

    def __repr__(self) -> str:
        """Its id alone."""
        return f"EncryptionKey({self.id!r})"


Key = SigningKey | EncryptionKey


class Keyring:
    """Keys, the newest first: that one makes, any of them opens."""

    __slots__ = ("_by_head", "accept_unsigned", "keys", "newest")

    def __init__(self, *keys: Key, accept_unsigned: Iterable[str] = ()) -> None:
        """`accept_unsigned` names queues whose unsigned messages are run all the same; "*" is every queue."""
        if not keys or not all(isinstance(key, Key) for key in keys):
            raise InvalidArgument("a Keyring holds no key; accepted are SigningKey and EncryptionKey")
        if len({key.id for key in keys}) < len(keys):
            raise InvalidArgument("a Keyring holds two keys of one id; accepted is an id of its own for each")
        self.keys = keys
        self.newest = keys[0]
        self.accept_unsigned = frozenset(accept_unsigned)
        self._by_head = {key.head: key for key in keys}

    @classmethod
    def from_text(cls, text: str, *, accept_unsigned: Iterable[str] = ()) -> Keyring:
        """A keyring as `MQWORKER_KEYS` says it; raises `InvalidArgument`, without showing any secret."""
        lines = (line.partition("#")[0] for line in text.splitlines())
        entries = [entry.strip() for line in lines for entry in line.split(",") if entry.strip()]
        return cls(*map(_key, entries), accept_unsigned=accept_unsigned)

    def key_of(self, sealed: bytes) -> Key:
        """The key by which it was sealed; raises `KeyUnknown`, or `NotVerified` for what is not sealed."""
        head = sealed[: 3 + sealed[2]] if len(sealed) > 3 else b""  # noqa: PLR2004 - mark, kind, length of the id
        key = self._by_head.get(head)
        if key is None:
            raise _unknown(head, {each.id for each in self.keys})
        return key

    def __repr__(self) -> str:
        """The ids, never a secret."""
        return f"Keyring({', '.join(map(repr, self.keys))})"


def new_key(id: str, purpose: str) -> str:  # noqa: A002 - what it is called
    """A new key as an entry of `MQWORKER_KEYS`; `purpose` is "sign" or "encrypt"."""
    entry = f"{id}:{purpose}:{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
    _key(entry)
    return entry


def is_sealed(body: bytes) -> bool:
    """Whether it was signed or encrypted, or is put together of what was."""
    return body[:2] in _SEALED_KINDS


def is_encrypted(body: bytes) -> bool:
    """Whether nobody without a key can read it."""
    return body[:2] == SEALED + _ENCRYPTED


def peeled(sealed: bytes) -> bytes:
    """The payload of what was signed, whoever signed it: for those who only show it."""
    if sealed[:2] != SEALED + _SIGNED or len(sealed) < 3:  # noqa: PLR2004 - see key_of
        return sealed
    return sealed[3 + sealed[2] + _MAC_BYTES :]


def _unknown(head: bytes, known: set[str]) -> NotVerified:
    if head[:2] not in (SEALED + _SIGNED, SEALED + _ENCRYPTED):
        return NotVerified("it is not signed")
    try:
        name = _checked_id(head[3:].decode("ascii"))
    except (UnicodeDecodeError, InvalidArgument):
        return NotVerified("it names no key")
    if name in known:
        return NotVerified(f"key {name} is for another purpose")
    return KeyUnknown(f"it was sealed by key {name}, which is not on the keyring here")


def _key(entry: str) -> Key:
    parts = entry.split(":")
    try:
        id_, purpose, text = parts
        secret = base64.b64decode(text, validate=True)
        return (
            SigningKey(id_, secret) if ("sign", "encrypt").index(purpose) == 0 else EncryptionKey(id_, secret)
        )
    except (ValueError, binascii.Error) as error:
        raise InvalidArgument(f"a key of {len(parts)} parts is none; accepted are {ACCEPTED_KEYS}") from error


def _head(kind: bytes, id_: str) -> bytes:
    return SEALED + kind + bytes([len(id_)]) + id_.encode()


def _checked_id(id_: object) -> str:
    if isinstance(id_, str) and _ID.fullmatch(id_):
        return id_
    raise InvalidArgument("the id of a key is not accepted; accepted are 1 to 32 of A-Z a-z 0-9 _ . -")


def _checked_secret(id_: str, secret: object) -> bytes:
    if isinstance(secret, bytes) and len(secret) == SECRET_BYTES:
        return secret
    raise InvalidArgument(
        f"the secret of key {id_} is not accepted; accepted are {SECRET_BYTES} random bytes"
    )
