"""Outbox mover: moves calls from the outbox of a database into Redis, where `outbox_url` is set.

Owns:     nothing: how far rows are moved stands in Redis, what is to be moved in the database.
Receives: Drain (supervisor).
Sends:    nothing.
Never:    waits for the database in its loop: a thread does, and a process that is stuck is replaced.

One mover of all nodes works, the others look every second whether it still does. That only spares work: two
at once harm nobody (tasks/outbox/mover.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mqworker.actors.actor import Post, Watched
from mqworker.actors.child_start import ChildStart
from mqworker.actors.mail import Drain, Mail
from mqworker.actors.mailbox import Mailbox
from mqworker.actors.wiring import logger_of, open_store, quarantine_of, queue_options, run_actor
from mqworker.errors import MqworkerError, StoreUnavailable
from mqworker.log import Logger
from mqworker.model.clock import Clock, SystemClock
from mqworker.queues.work.keys import outbox_key
from mqworker.redaction import masked_text
from mqworker.store.store import Store

if TYPE_CHECKING:
    from mqworker.tasks.outbox.mover import OutboxMover

TURN_HELD_MS = 5_000
"""How long a mover that died keeps the others waiting."""
LOOK_EVERY_MS = 1_000
AFTER_TROUBLE_MS = 1_000
FIRST_PAUSE_MS = 5
STUCK_MS = 60_000
"""How long a single step may take; then the connection is given up, and the process with it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """What the thread last knew."""

    is_standby: bool = False
    rows: int = 0
    oldest_ms: int = 0
    bad: int = 0
    why_bad: str = ""
    trouble: str = "the database was not asked yet"
    looked_at_ms: int = 0
    moved: int = 0


class MoverThread:
    """Speaks with the database and Redis, and may be held up by either."""

    def __init__(
        self,
        open_mover: Callable[[], OutboxMover],
        store: Store,
        *,
        namespace: str,
        holder: str,
        poll_ms: int,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._open_mover = open_mover
        self._store = store
        self._namespace = namespace
        self._holder = holder
        self._poll_ms = poll_ms
        self._clock = clock
        self._log = log
        self._mover: OutboxMover | None = None
        self._next_turn_ms = self._next_look_ms = 0
        self._pause_ms = FIRST_PAUSE_MS
        self._has_turn = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="outbox", daemon=True)
        self.picture = Picture(looked_at_ms=clock.monotonic_ms())
        self.step_began_at_ms = clock.monotonic_ms()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End after the step that is under way."""
        self._stop.set()

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def _work(self) -> None:
        while not self._stop.is_set():
            self.step_began_at_ms = self._clock.monotonic_ms()
            self._stop.wait(self._step() / 1000)
        if self._has_turn:
            self._give_turn_back()

    def _step(self) -> int:
        """One pass; how many milliseconds until the next."""
        try:
            return self._pass()
        except StoreUnavailable as error:
            self._note_trouble(error)
        # Broad, for a row or a driver that nobody foresaw must not end the mover: it would fail again.
        except Exception as error:  # noqa: BLE001 - same
            self._note_trouble(error)
            self._close()  # its tables may be others by now
        return AFTER_TROUBLE_MS

    def _pass(self) -> int:
        mover = self._mover = self._mover or self._open_mover()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_turn_ms:
            self._next_turn_ms = now_ms + LOOK_EVERY_MS
            self._has_turn = self._take_turn(mover.outbox)
        if not self._has_turn:
            self.picture = Picture(is_standby=True, trouble="", looked_at_ms=now_ms, moved=mover.moved)
            return LOOK_EVERY_MS
        moved = mover.move()
        if now_ms >= self._next_look_ms:
            self._next_look_ms = now_ms + LOOK_EVERY_MS
            mover.delete_moved()
            self._look(mover)
        # The more there was to do, the sooner there will be more.
        self._pause_ms = FIRST_PAUSE_MS if moved else min(self._poll_ms, 2 * self._pause_ms)
        return 0 if moved >= _MANY else self._pause_ms

    def _look(self, mover: OutboxMover) -> None:
        waiting, troubles = mover.waiting(), mover.troubles()
        queue = next(iter(troubles), None)
        trouble = "" if queue is None else f"queue {queue} takes nothing: {troubles[queue]}"
        if self.picture.trouble and not trouble:
            self._log.info("outbox_resumed", rows=waiting.rows)
        self.picture = Picture(
            rows=waiting.rows,
            oldest_ms=waiting.oldest_ms,
            bad=waiting.bad,
            why_bad=waiting.why,
            trouble=trouble,
            looked_at_ms=self._clock.monotonic_ms(),
            moved=mover.moved,
        )

    def _note_trouble(self, error: Exception) -> None:
        trouble = masked_text(str(error) or type(error).__name__)
        if trouble != self.picture.trouble:
            self._log.warning(
                "outbox_unavailable", reason=trouble, exc_info=not isinstance(error, MqworkerError)
            )
        self.picture = replace(self.picture, trouble=trouble)

    def _close(self) -> None:
        mover, self._mover = self._mover, None
        if mover is not None:
            mover.close()

    def _take_turn(self, outbox: str) -> bool:
        """Whether this mover is the one that works. Two may think so for a moment."""
        key = outbox_key(self._namespace, outbox)
        held = ("SET", key, self._holder, "PX", TURN_HELD_MS)
        was_free, holder = self._store.send([(*held, "NX"), ("GET", key)], key)
        if was_free is None and holder == self._holder.encode():
            self._store.send([held], key)
        return holder == self._holder.encode()

    def _give_turn_back(self) -> None:
        if self._mover is not None:
            key = outbox_key(self._namespace, self._mover.outbox)
            try:
                self._store.send([("DEL", key)], key)
            except MqworkerError:
                return  # the others wait until it ends by itself


_MANY = 100
"""Rows of one pass after which the next one begins at once."""


class OutboxMoverActor:
    """The actor; see the module's first lines."""

    name = "outbox_mover"

    def __init__(self, thread: MoverThread, clock: Clock) -> None:
        self._thread = thread
        self._clock = clock
        self._over_by_ms: int | None = None
        self.is_done = False
        thread.start()

    def handle(self, mail: Mail, sender: str, now_ms: int) -> Sequence[Post]:  # noqa: ARG002 - as all actors
        """End the thread when the node drains."""
        if isinstance(mail, Drain):
            self._over_by_ms = now_ms + mail.grace_ms
            self._thread.stop()
        return ()

    def turn(self, now_ms: int) -> Iterable[Post]:
        """Watch over the thread."""
        if self._over_by_ms is not None:
            self.is_done = self._thread.is_over or now_ms >= self._over_by_ms - _LAST_WORDS_MS
        elif now_ms - self._thread.step_began_at_ms > STUCK_MS:
            raise StoreUnavailable(f"the database, or Redis, has not answered for {STUCK_MS // 1000} s")
        return ()

    def next_turn_in_ms(self, _now_ms: int) -> int:
        """Seldom; soon while it drains."""
        return 1_000 if self._over_by_ms is None else 10

    def watched(self) -> Iterable[Watched]:
        """Nothing but mail."""
        return ()

    def facts(self) -> dict[str, Any]:
        """For `status` and the metrics: how many rows wait, and for how long."""
        seen = self._thread.picture
        silent_ms = self._clock.monotonic_ms() - seen.looked_at_ms
        is_late = silent_ms > 3 * LOOK_EVERY_MS
        trouble = seen.trouble or (f"no answer for {silent_ms // 1000} s" if is_late else "")
        facts = {
            "is_standby": seen.is_standby,
            "rows": seen.rows,
            # What was not looked at may hold something, and for as long.
            "lag_ms": seen.oldest_ms + silent_ms if trouble and is_late else seen.oldest_ms,
            "bad": seen.bad,
            "why_bad": seen.why_bad,
            "trouble": trouble,
            "moved": seen.moved,
        }
        return {"outbox": facts}


_LAST_WORDS_MS = 50


def main(control: Mailbox, start: ChildStart) -> int:
    """The mover's process."""
    from mqworker.tasks.outbox.mover import OutboxMover  # noqa: PLC0415 - the extra "sql", here alone
    from mqworker.tasks.outbox.rows import OutboxRows  # noqa: PLC0415 - same

    settings, clock, log = start.settings, SystemClock(), logger_of(start)
    quarantine = quarantine_of(start)
    store = open_store(start, quarantine)

    def open_mover() -> OutboxMover:
        rows = OutboxRows.open(settings.outbox_url or "")
        try:
            return OutboxMover(
                rows,
                store,
                queue_options(settings),
                log,
                keep_ms=round(settings.outbox_keep_s * 1000),
                monotonic_ms=clock.monotonic_ms,
            )
        except BaseException:
            rows.close()
            raise

    thread = MoverThread(
        open_mover,
        store,
        namespace=settings.namespace,
        holder=start.node,
        poll_ms=round(settings.outbox_poll_s * 1000),
        clock=clock,
        log=log,
    )
    return run_actor(OutboxMoverActor(thread, clock), control, start, open_store(start, quarantine))
