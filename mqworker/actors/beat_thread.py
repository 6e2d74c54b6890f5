"""The beat thread: beats for this node's consumers at their interval, whatever else their process waits for.

The heartbeat reaper asks its servers many things, and may wait seconds for an answer. Meanwhile this thread
sends beats and reads who else was heard, on links that nothing else uses.
A process that is stopped beats no more.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Iterable, Sequence
from queue import Empty, SimpleQueue

from mqworker.actors.actor import Watched
from mqworker.actors.waker import Waker
from mqworker.model.clock import Clock
from mqworker.queues.work.heartbeat import Heartbeat, Reading


class BeatThread:
    """All methods but the loop itself are called by the actor's own thread."""

    def __init__(self, heartbeat: Heartbeat, interval_ms: int, clock: Clock) -> None:
        self._heartbeat = heartbeat
        self._interval_ms = interval_ms
        self._clock = clock
        self._consumers: frozenset[str] = frozenset()
        self._readings: SimpleQueue[Reading] = SimpleQueue()
        self._is_read = Waker()
        self._is_changed = Waker()
        self._beat_at_ms = 0
        self._failure: BaseException | None = None
        self._is_over = False

    def start(self) -> BeatThread:
        """Begin to beat."""
        threading.Thread(target=self._run, name="beats", daemon=True).start()
        return self

    def beat_for(self, consumers: Iterable[str]) -> None:
        """From now on for these, the first time at once."""
        self._consumers = frozenset(consumers)
        self._is_changed.wake()

    def readings(self) -> list[Reading]:
        """What was read since the last time, in order. Raises what ended the thread: so does the process."""
        self._is_read.clear()
        if self._failure is not None:
            raise RuntimeError("the beat thread ended") from self._failure
        found: list[Reading] = []
        try:
            while True:
                found.append(self._readings.get_nowait())
        except Empty:
            return found

    @property
    def problem(self) -> str:
        """The latest refusal of a server."""
        return self._heartbeat.problem

    def watched(self) -> Sequence[Watched]:
        """What becomes readable when something was read."""
        return (self._is_read,)

    def close(self) -> None:
        """Beat no more."""
        self._is_over = True
        self._is_changed.wake()

    def _run(self) -> None:
        try:
            while not self._is_over:
                self._beat_and_hear()
                self._wait()
        # Broad, because a node whose thread ended unnoticed would be taken for dead by all others.
        except BaseException as error:  # noqa: BLE001 - see above; `readings` raises it
            self._failure = error
            self._is_read.wake()

    def _beat_and_hear(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._beat_at_ms:
            self._beat_at_ms = now_ms + self._interval_ms
            self._heartbeat.send(self._consumers, now_ms)
        for reading in self._heartbeat.receive(now_ms):
            self._readings.put(reading)
            self._is_read.wake()

    def _wait(self) -> None:
        """Until the next beat is due, an answer is there, or there are others to beat for."""
        poll = select.poll()
        watched: list[Watched] = [self._is_changed, *self._heartbeat.watched()]
        for each in watched:
            poll.register(each.fileno(), select.POLLIN)
        ready = poll.poll(max(0, self._beat_at_ms - self._clock.monotonic_ms()))
        if any(descriptor == self._is_changed.fileno() for descriptor, _ in ready):
            self._is_changed.clear()
            self._beat_at_ms = 0
