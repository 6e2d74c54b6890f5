"""Sealed payloads open in their own place, by a key of the ring, and nowhere else."""

import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidArgument, KeyUnknown, NotVerified
from mqworker.model.assembled_call import Grant, Origin, as_input, assembled, join_of
from mqworker.model.envelope import decode_call, encode_call
from mqworker.model.keyring import EncryptionKey, Keyring, SigningKey, new_key, peeled
from mqworker.model.seal import Seal
from mqworker.model.value_codec import pack
from mqworker.tasks.payloads import Payloads

SECRET = bytes(range(32))
BODY = encode_call([7, "ann"], {"tenant": "acme"})
MAKE_KEYS = pytest.mark.parametrize("make", [SigningKey, EncryptionKey])
MakeKey = Callable[[str, bytes], SigningKey | EncryptionKey]


def a_seal(*keys: SigningKey | EncryptionKey, namespace: str = "mqw") -> Seal:
    return Seal(Keyring(*keys), namespace)


@MAKE_KEYS
@given(st.binary(max_size=300), st.data())
def test_a_message_with_any_bit_flipped_is_refused(make: MakeKey, body: bytes, data: st.DataObject) -> None:
    seal = a_seal(make("k1", SECRET))
    sealed = seal.close_call("mail", "shop.send", "m1", body)
    at = data.draw(st.integers(0, 8 * len(sealed) - 1))
    flipped = bytearray(sealed)
    flipped[at // 8] ^= 1 << at % 8

    with pytest.raises(NotVerified):
        seal.open_call("mail", "shop.send", "m1", bytes(flipped))


@MAKE_KEYS
def test_every_single_bit_of_one_message_counts(make: MakeKey) -> None:
    seal = a_seal(make("k1", SECRET))
    sealed = seal.close_call("mail", "shop.send", "m1", BODY)

    for at in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(NotVerified):
            seal.open_call("mail", "shop.send", "m1", bytes(flipped))
    for end in range(len(sealed)):
        with pytest.raises(NotVerified):
            seal.open_call("mail", "shop.send", "m1", sealed[:end])


@MAKE_KEYS
@pytest.mark.parametrize(
    "place", [("other", "shop.send", "m1"), ("mail", "shop.refund", "m1"), ("mail", "shop.send", "m2")]
)
def test_a_message_of_one_queue_task_or_id_is_refused_in_another(
    make: MakeKey, place: tuple[str, str, str]
) -> None:
    seal = a_seal(make("k1", SECRET))
    sealed = seal.close_call("mail", "shop.send", "m1", BODY)

    with pytest.raises(NotVerified):
        seal.open_call(*place, sealed)
    with pytest.raises(NotVerified):
        a_seal(make("k1", SECRET), namespace="other").open_call("mail", "shop.send", "m1", sealed)
    assert seal.open_call("mail", "shop.send", "m1", sealed) == BODY


@MAKE_KEYS
def test_a_result_is_no_call_and_no_result_of_another_job(make: MakeKey) -> None:
    seal = a_seal(make("k1", SECRET))
    result = seal.close_result("mail", "m1", pack(7))

    assert seal.open_value(["result", "mail", "m1"], result, "mail") == pack(7)
    with pytest.raises(NotVerified):
        seal.open_value(["result", "mail", "m2"], result, "mail")
    with pytest.raises(NotVerified):
        seal.open_call("mail", "shop.send", "m1", result)


@MAKE_KEYS
def test_after_rotation_the_newest_key_makes_and_any_opens(make: MakeKey) -> None:
    old, new = make("2025", SECRET), EncryptionKey("2026", os.urandom(32))
    before = a_seal(old).close_call("mail", "shop.send", "m1", BODY)
    rotated = a_seal(new, old)
    after = rotated.close_call("mail", "shop.send", "m2", BODY)

    assert rotated.open_call("mail", "shop.send", "m1", before) == BODY
    assert a_seal(new).open_call("mail", "shop.send", "m2", after) == BODY
    with pytest.raises(KeyUnknown, match="key 2026"):
        a_seal(old).open_call("mail", "shop.send", "m2", after)


def test_another_key_of_the_same_id_opens_nothing() -> None:
    sealed = a_seal(SigningKey("k1", SECRET)).close_call("mail", "t", "m1", BODY)

    with pytest.raises(NotVerified):
        a_seal(SigningKey("k1", os.urandom(32))).open_call("mail", "t", "m1", sealed)


def test_what_is_encrypted_cannot_be_read_and_is_never_encrypted_alike_twice() -> None:
    seal = a_seal(EncryptionKey("k1", SECRET))

    sealed = [seal.close_call("mail", "t", "m1", BODY) for _ in range(1_000)]

    assert b"ann" not in b"".join(sealed)
    assert len(set(sealed)) == 1_000
    assert peeled(sealed[0]) == sealed[0]
    assert peeled(a_seal(SigningKey("k", SECRET)).close_call("mail", "t", "m1", BODY)) == BODY


def test_the_child_of_a_fork_counts_under_a_salt_of_its_own() -> None:
    seal = a_seal(EncryptionKey("k1", SECRET))
    seal.close_call("mail", "t", "m1", BODY)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, seal.close_call("mail", "t", "m1", BODY))
        os._exit(0)
    os.wait()

    from_child = os.read(read, 10_000)

    assert from_child[5:17] != seal.close_call("mail", "t", "m1", BODY)[5:17]
    assert seal.open_call("mail", "t", "m1", from_child) == BODY


def test_unsigned_messages_are_refused_but_where_they_are_accepted() -> None:
    some = Seal(Keyring(SigningKey("k", SECRET), accept_unsigned=["legacy"]), "mqw")

    assert some.open_call("legacy", "t", "m1", BODY) == BODY
    with pytest.raises(NotVerified, match="accept_unsigned"):
        some.open_call("mail", "t", "m1", BODY)
    every = Seal(Keyring(SigningKey("k", SECRET), accept_unsigned="*"), "mqw")
    assert every.open_call("mail", "t", "m1", BODY) == BODY


def test_the_next_step_of_a_workflow_is_checked_with_its_input() -> None:
    seal = a_seal(EncryptionKey("k1", SECRET))
    source = join_of([["call", "mail", 1, False], ["call", "mail", 2, True]])
    body = encode_call([None, "more"], {})
    grant = seal.close_grant("sums", "shop.add", Grant(body, Origin("w1~3", source=source)))
    one, two = (seal.close_result("mail", f"w1~{node}", pack(node * 10)) for node in (1, 2))
    failure = pack({"task": "t", "id": "w1~2", "reason": "exhausted", "error": "", "message": ""})

    payloads = Payloads(seal)

    def opened(first: bytes, second: bytes, message: str = "w1~3") -> list[object]:
        call = assembled(grant, b"\x92" + first + second)
        return decode_call(payloads.open_call("sums", "shop.add", message, call)).args

    assert opened(as_input(one), as_input(two)) == [[10, 20], "more"]
    assert opened(as_input(one), failure)[0][1]["reason"] == "exhausted"  # type: ignore[index]
    for wrong in [
        lambda: opened(as_input(two), as_input(one)),  # the results of others
        lambda: opened(pack(10), as_input(two)),  # not signed
        lambda: opened(failure, as_input(two)),  # this one was not to fail
        lambda: opened(as_input(one), as_input(two), "w1~4"),  # another step
        lambda: opened(as_input(one), as_input(two), "w2~3"),  # another workflow
    ]:
        with pytest.raises(NotVerified):
            wrong()


def test_a_tick_of_a_schedule_and_the_copy_of_an_event_are_made_of_grants() -> None:
    seal = a_seal(SigningKey("k1", SECRET))
    tick = seal.close_grant("q", "t", Grant(BODY, Origin("app/nightly@", is_exact=False)))
    source = ["event", "orders"]
    copy = seal.close_grant(
        "q", "t", Grant(encode_call([None], {}), Origin("", ":app/t", is_exact=False, source=source))
    )
    payload = seal.close_value(["event", "orders", "e1"], pack({"id": 7}))

    assert Payloads(seal).open_call("q", "t", "app/nightly@17", assembled(tick, None)) == BODY
    with pytest.raises(NotVerified):
        Payloads(seal).open_call("q", "t", "app/hourly@17", assembled(tick, None))
    opened = Payloads(seal).open_call("q", "t", "e1:app/t", assembled(copy, as_input(payload)))
    assert decode_call(opened).args == [{"id": 7}]
    with pytest.raises(NotVerified):
        Payloads(seal).open_call("q", "t", "e2:app/t", assembled(copy, as_input(payload)))
    with pytest.raises(NotVerified):
        Payloads(seal).open_call("q", "t", "e1:app/t", assembled(copy, pack({"id": 8})))


def test_keys_are_read_from_text_without_showing_a_secret() -> None:
    entries = [new_key("2026", "encrypt"), new_key("2025", "sign")]

    ring = Keyring.from_text(f"# the newest first\n{entries[0]}\n{entries[1]} # old\n")

    assert [key.id for key in ring.keys] == ["2026", "2025"]
    assert Keyring.from_text(",".join(entries)).newest.id == "2026"
    assert entries[0].split(":")[2] not in repr(ring)
    for bad in (
        "",
        "k1:sign:c2hvcnQ=",
        "k1:hide:" + entries[0].split(":")[2],
        "k1",
        entries[0] + "," + entries[0],
    ):
        with pytest.raises(InvalidArgument) as refused:
            Keyring.from_text(bad)
        assert entries[0].split(":")[2] not in str(refused.value)
