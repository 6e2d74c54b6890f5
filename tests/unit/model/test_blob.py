"""Blobs: names that tell whose they are, references that recognise their payload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqworker.errors import InvalidMessage
from mqworker.model.blob import Owner, Reference, digest_of, new_name, owner_of, reference_in

IDS = st.from_regex(r"\A[A-Za-z0-9_][A-Za-z0-9_.:@/+=~-]{0,127}\Z")


@given(IDS, st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
def test_a_name_tells_its_owner(message: str, queue: str) -> None:
    owner = Owner("mqw", queue, "arguments", message)
    name = new_name(owner)

    if queue.strip("."):
        assert owner_of(name) == owner
    assert len(name.split("/")) == 3
    assert max(map(len, name.split("/"))) <= 255
    assert new_name(owner) != name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mqw/q",
        "mqw/../a.x.1",
        "../q/a.x.1",
        "mqw/q/a.x.1/more",
        "/q/a.x.1",
        "mqw/q/z.x.1",
        "mqw/q/a..1",
        "a\\b/q/a.x.1",
    ],
)
def test_a_name_that_leads_elsewhere_is_none(name: str) -> None:
    with pytest.raises(InvalidMessage):
        owner_of(name)
    with pytest.raises(InvalidMessage):
        reference_in(Reference(name, 3, b"").encoded())


def test_a_reference_recognises_its_payload() -> None:
    reference = Reference("mqw/q/a.m1.ff", 3, digest_of(b"abc"))

    assert reference_in(reference.encoded()) == reference
    assert reference.is_of(b"abc")
    assert not reference.is_of(b"abd")
    assert not reference.is_of(b"abcd")
    for cut in range(2, len(reference.encoded())):
        with pytest.raises(InvalidMessage):
            reference_in(reference.encoded()[:cut])
