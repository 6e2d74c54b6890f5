"""Values that another program packed to do harm."""

from __future__ import annotations

import struct
import sys
import time
from decimal import Decimal

import msgpack
import pytest

from mqworker.errors import InvalidMessage
from mqworker.model.value_codec import pack, unpack

MODULUS = sys.hash_info.modulus
DECIMAL, SET, FROZENSET = 3, 5, 6


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("around", [b"", b"\x91", b"\x81\xa1a"])
def test_a_single_that_is_no_number_is_refused_like_a_double(number: float, around: bytes) -> None:
    with pytest.raises(InvalidMessage, match="infinite or not a number"):
        unpack(around + b"\xca" + struct.pack(">f", number))


def test_an_ordinary_single_is_read() -> None:
    assert unpack(b"\xca" + struct.pack(">f", 1.5)) == 1.5


def colliding(count: int) -> list[msgpack.ExtType]:
    keys = [msgpack.ExtType(DECIMAL, str(7 + n * MODULUS).encode()) for n in range(count)]
    assert len({hash(Decimal(key.data.decode())) for key in keys}) == 1
    return keys


def test_keys_that_collide_are_refused_at_once() -> None:
    keys = colliding(4_900)
    as_map = msgpack.packb(dict.fromkeys(keys, 1))
    as_set = msgpack.packb(msgpack.ExtType(SET, msgpack.packb(keys)))
    as_frozenset = msgpack.packb(msgpack.ExtType(FROZENSET, msgpack.packb(keys)))

    for packed in (as_map, as_set, as_frozenset):
        began_s = time.process_time()
        with pytest.raises(InvalidMessage, match="same hash"):
            unpack(packed)
        assert time.process_time() - began_s < 1


def test_many_ordinary_keys_are_accepted() -> None:
    many = {Decimal(n): n for n in range(-1_500, 1_500)} | {str(n): n for n in range(1_000)}

    assert unpack(pack(many)) == many
    assert unpack(pack(set(range(-2_000, 2_000)))) == set(range(-2_000, 2_000))
