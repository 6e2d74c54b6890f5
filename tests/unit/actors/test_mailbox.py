"""Mailboxes over a real pipe: what it does not take at once comes later, whole and in order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mqworker.actors.mail import CancelDelivery, RunDeliveries
from mqworker.actors.mailbox import Mailbox, MailboxClosed, MailboxFull, open_pipe

LARGE = RunDeliveries("q", [1], [b"x" * 3_000_000])


@pytest.fixture
def ends() -> Iterator[tuple[Mailbox, Mailbox]]:
    ours, theirs = (Mailbox(descriptor) for descriptor in open_pipe())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_what_the_pipe_does_not_take_at_once_comes_later_in_order(ends: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = ends
    mails = [CancelDelivery("first"), LARGE, *(CancelDelivery(f"n{number}") for number in range(500)), LARGE]
    for mail in mails:
        ours.send(mail)
    had_unsent = ours.has_unsent

    received = []
    while len(received) < len(mails):
        ours.flush()
        received += theirs.receive()

    assert had_unsent
    assert received == mails
    assert not ours.has_unsent


def test_a_peer_that_reads_nothing_is_given_up_at_last(ends: tuple[Mailbox, Mailbox]) -> None:
    ours, _ = ends
    for _ in range(20):
        ours.send(LARGE)

    with pytest.raises(MailboxFull, match="bytes unread by the peer"):
        ours.send(RunDeliveries("q", [1], [b"x" * 10_000_000]))


def test_what_a_peer_that_is_gone_did_not_read_is_forgotten(ends: tuple[Mailbox, Mailbox]) -> None:
    ours, theirs = ends
    ours.send(LARGE)
    theirs.close()

    with pytest.raises(MailboxClosed):
        ours.flush()

    assert not ours.has_unsent
