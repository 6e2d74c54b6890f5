"""The one loop that every actor lives in: mail in, mail out, time in between.

An actor is a small class that turns mail into mail; a test calls `handle` and reads the answer. Pipes,
selectors and the conversation with the supervisor are here, once. The loop answers pings itself, between two
turns and between two round trips to a server: an actor that hangs does not answer, and that is how the
supervisor knows.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from mqworker.actors.frame import BrokenFrame
from mqworker.actors.mail import (
    Attach,
    Drain,
    Drained,
    Hello,
    Mail,
    NodeShown,
    NodeSnapshot,
    PeerAttached,
    PeerLost,
    Ping,
    Pong,
)
from mqworker.actors.mailbox import Mailbox, MailboxClosed, MailboxFull
from mqworker.actors.node_notice import NodeNotice
from mqworker.log import Logger
from mqworker.model.clock import Clock
from mqworker.model.quarantine import Quarantine

SUPERVISOR = "supervisor"
_LONGEST_WAIT_MS = 1_000
PINGS_EVERY_MS = 500
LONGEST_TURN_MS = 60_000
"""How long an actor may wait for slow servers within one turn; after that it counts as hung."""
_WRITE_TOO = selectors.EVENT_READ | selectors.EVENT_WRITE


@dataclass(frozen=True, slots=True)
class Post:
    """Mail with the name of the peer it goes to."""

    to: str
    mail: Mail


class Watched(Protocol):
    """Something besides pipes that an actor waits for, such as a subscription."""

    def fileno(self) -> int:
        """The descriptor that becomes readable."""


class Actor(Protocol):
    """What every actor offers to the loop."""

    name: str
    is_done: bool
    """True after a drain, when it holds nothing any more: the loop ends."""

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:
        """Answer one mail."""

    def turn(self, now_ms: int) -> Iterable[Post]:
        """Do what is due: after mail was handled, when time passed, when a watched thing woke.

        Each mail is sent before the next one is asked for.
        """

    def next_turn_in_ms(self, now_ms: int) -> int:
        """How long the loop may sleep when no mail comes."""

    def watched(self) -> Iterable[Watched]:
        """What else to wait for; asked before every sleep."""

    def facts(self) -> dict[str, Any]:
        """A few plain values for the status screen."""


class ActorLoop:
    """Runs one actor in this process until the supervisor drains it or goes away."""

    def __init__(
        self,
        actor: Actor,
        control: Mailbox,
        clock: Clock,
        log: Logger,
        quarantine: Quarantine | None = None,
        *,
        notice: NodeNotice | None = None,
    ) -> None:
        """What stands in `quarantine` is told with the actor's own facts; `notice` shows the whole node."""
        self._notice = notice
        self._actor = actor
        self._quarantine = quarantine or Quarantine(clock)
        self._clock = clock
        self._log = log
        self._mailboxes: dict[str, Mailbox] = {SUPERVISOR: control}
        self._selector = selectors.DefaultSelector()
        self._interests: dict[int, tuple[Watched, int]] = {}
        self._progress = 0
        self._turned_at_ms = self._looked_at_ms = 0
        self._put_off: list[Mail] = []
        """Mail of the supervisor that came in the middle of a turn, and is not a ping."""

    def run(self) -> None:
        """Turn until done. Returns as well when the supervisor is gone: its pipe is the leash."""
        self.deliver([Post(SUPERVISOR, Hello(self._actor.name, os.getpid()))])
        while not self._actor.is_done and SUPERVISOR in self._mailboxes:
            wait_ms = min(self._actor.next_turn_in_ms(self._clock.monotonic_ms()), _LONGEST_WAIT_MS)
            ready = self._wait_for_mail(0 if self._put_off else wait_ms)
            self._take_what_was_put_off()
            for sender, mailbox in ready:
                self._read(sender, mailbox)
            self._turned_at_ms = self._looked_at_ms = self._clock.monotonic_ms()
            self.deliver(self._actor.turn(self._turned_at_ms))
            self._progress += 1
        if self._notice is not None:
            self._notice.remove()
        self.deliver([Post(SUPERVISOR, Drained())])

    def serve(self, turn: Callable[[], Iterable[Post]]) -> None:
        """Read the mail that is there and send what `turn` yields, without waiting.

        For a second thread, while the actor's turn does not come to an end: both hold the same lock, so that
        only one of them is in here at a time.
        """
        for sender, mailbox in self._wait_for_mail(0):
            self._read(sender, mailbox)
        self.deliver(turn())

    def answer_pings(self) -> None:
        """Called in the middle of a turn: an actor that waits for a slow server is not hung.

        All other mail of the supervisor waits for the turn's end.
        """
        now_ms = self._clock.monotonic_ms()
        control = self._mailboxes.get(SUPERVISOR)
        if now_ms - self._looked_at_ms < PINGS_EVERY_MS or control is None:
            return
        self._looked_at_ms = now_ms
        if now_ms - self._turned_at_ms > LONGEST_TURN_MS:
            return
        with suppress(MailboxClosed, BrokenFrame):  # the next look finds that, too
            for mail in control.receive():
                if isinstance(mail, Ping):
                    self._take(mail, SUPERVISOR, control)
                else:
                    self._put_off.append(mail)

    def _take_what_was_put_off(self) -> None:
        mails, self._put_off = self._put_off, []
        for mail in mails:
            if (control := self._mailboxes.get(SUPERVISOR)) is not None:
                self._take(mail, SUPERVISOR, control)

    def _wait_for_mail(self, wait_ms: int) -> list[tuple[str, Mailbox]]:
        interests: dict[int, tuple[Watched, int]] = {
            watched.fileno(): (watched, selectors.EVENT_READ) for watched in self._actor.watched()
        }
        for mailbox in self._mailboxes.values():
            interests[mailbox.fileno()] = (
                mailbox,
                _WRITE_TOO if mailbox.has_unsent else selectors.EVENT_READ,
            )
        if interests != self._interests:
            self._register(interests)
        ready = {key.fd for key, _ in self._selector.select(max(0, wait_ms) / 1000)}
        return [(peer, mailbox) for peer, mailbox in self._mailboxes.items() if mailbox.fileno() in ready]

    def _register(self, interests: dict[int, tuple[Watched, int]]) -> None:
        # Compared with the owner, not by number alone: a descriptor that was closed is forgotten by the
        # kernel, and its number is given to the next one.
        for descriptor, interest in self._interests.items():
            if interests.get(descriptor) != interest:
                self._selector.unregister(descriptor)
        for descriptor, interest in interests.items():
            if self._interests.get(descriptor) != interest:
                self._selector.register(descriptor, interest[1])
        self._interests = interests

    def _read(self, sender: str, mailbox: Mailbox) -> None:
        if self._mailboxes.get(sender) is not mailbox:
            return  # it was replaced while the mail before it was read
        with suppress(MailboxClosed):  # what it sent before it died is still to be read
            mailbox.flush()
        try:
            mails = mailbox.receive()
        except (MailboxClosed, BrokenFrame) as error:
            self._lose(sender, str(error))
            return
        for mail in mails:
            self._take(mail, sender, mailbox)

    def _take(self, mail: Mail, sender: str, mailbox: Mailbox) -> None:
        match mail:
            case Ping(number):
                self.deliver([Post(sender, Pong(number, self._progress, self._facts()))])
            case Attach(peer):
                self._replace(peer, Mailbox(mailbox.take_descriptor()))
                self._answer(PeerAttached(peer), SUPERVISOR)
            case NodeSnapshot(number=number):
                if self._notice is not None and self._notice.write(mail, self._clock.monotonic_ms()):
                    self.deliver([Post(sender, NodeShown(number))])
            case Drain():
                self._log.debug("actor_draining", grace_ms=mail.grace_ms)
                self._answer(mail, sender)
            case _:
                self._answer(mail, sender)

    def _facts(self) -> dict[str, Any]:
        return self._actor.facts() | self._quarantine.facts()

    def _answer(self, mail: Mail, sender: str) -> None:
        self.deliver(self._actor.handle(mail, sender, self._clock.monotonic_ms()))

    def _replace(self, peer: str, mailbox: Mailbox) -> None:
        old = self._mailboxes.get(peer)
        if old is not None:
            self._read(peer, old)  # its last mail counts
            self._lose(peer, "its next generation was attached")
        self._mailboxes[peer] = mailbox

    def deliver(self, posts: Iterable[Post]) -> None:
        """Send mail now."""
        for post in posts:
            mailbox = self._mailboxes.get(post.to)
            if mailbox is None:
                continue  # it died a moment ago; PeerLost told the actor, or will
            try:
                mailbox.send(post.mail)
            except MailboxFull as error:
                self._lose(post.to, str(error))
            except MailboxClosed:
                continue  # as above; the end of file comes after its last mail

    def _lose(self, peer: str, reason: str) -> None:
        mailbox = self._mailboxes.pop(peer, None)
        if mailbox is None:
            return
        mailbox.close()
        if peer != SUPERVISOR:
            self._log.debug("peer_lost", peer=peer, reason=reason)
            self._answer(PeerLost(peer), SUPERVISOR)
