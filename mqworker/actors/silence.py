"""Silence: which consumers gave no sign of life for a whole time-out, as far as one can hear. Pure.

A consumer is heard when its beat changes, wherever that is seen. What counts is the time during which this
process itself could hear: a beat that was not read says nothing, and after a while without any reading
everybody gets the whole time-out anew. No clock but one's own is compared: a server's may jump.
"""

from __future__ import annotations

from mqworker.queues.work.heartbeat import Reading


class SilenceWatch:
    """Notes readings, and judges by them."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._longest_gap_ms = timeout_ms / 2
        self._listening_since_ms = 0
        self._asked_at_ms = 0
        self._read_at_ms: dict[str, int] = {}
        self._beat: dict[tuple[str, str], bytes] = {}
        self._heard_at_ms: dict[str, int] = {}
        self._own_timeout_ms: dict[str, int] = {}
        self._unlisted: set[str] = set()
        """Those that no server lists any more, until they were silent for a time-out by our own clock."""

    def note(self, reading: Reading) -> None:
        """A server answered. Readings are noted in the order in which they came."""
        read_at_ms, last_ms = reading.read_at_ms, self._read_at_ms.get(reading.key)
        if last_ms is None or read_at_ms - last_ms > self._longest_gap_ms:
            # Whatever kept us from hearing may have kept others from beating.
            self._listening_since_ms = read_at_ms
        self._read_at_ms[reading.key] = read_at_ms
        self._asked_at_ms = max(self._asked_at_ms, reading.asked_at_ms)
        for consumer, beat in reading.beats.items():
            if self._beat.get((reading.key, consumer)) != beat:
                self._beat[reading.key, consumer] = beat
                self._heard_at_ms[consumer] = read_at_ms
        self._own_timeout_ms |= reading.timeout_ms
        self._forget(reading)

    def is_silent(self, consumer: str, now_ms: int) -> bool:
        """Whether its beats stayed away for a whole time-out; only ever said on a fresh reading.

        From when its last beat was seen until when the latest question was put: what came after that is not
        known. A consumer that was never heard of is silent since we listen.
        """
        if now_ms - self._asked_at_ms > self._longest_gap_ms:
            return False
        heard_at_ms = max(self._listening_since_ms, self._heard_at_ms.get(consumer, 0))
        return self._asked_at_ms - heard_at_ms >= self.timeout_ms(consumer)

    def timeout_ms(self, consumer: str) -> int:
        """How long it may be silent: its own time-out or ours, whichever is longer."""
        return max(self._timeout_ms, self._own_timeout_ms.get(consumer, 0))

    def is_listed(self, consumer: str) -> bool:
        """Whether it ever beat, as far as the servers remember."""
        return consumer in self._heard_at_ms

    def is_listening(self, now_ms: int) -> bool:
        """Whether we could hear for a whole time-out, up to now."""
        return self.is_silent("", now_ms)

    def silent(self, now_ms: int) -> set[str]:
        """All listed consumers that are silent."""
        return {consumer for consumer in self._heard_at_ms if self.is_silent(consumer, now_ms)}

    def _forget(self, reading: Reading) -> None:
        """Those that are no longer listed, once their time-out has passed.

        Not sooner: a server whose clock was set forward drops whoever is not beating this very moment.
        """
        gone = [each for each in self._beat if each[0] == reading.key and each[1] not in reading.beats]
        for each in gone:
            del self._beat[each]
        self._unlisted.update(consumer for _, consumer in gone)
        for consumer in list(self._unlisted):
            is_back = any(name == consumer for _, name in self._beat)
            is_over = self._asked_at_ms - self._heard_at_ms[consumer] >= self.timeout_ms(consumer)
            if is_over and not is_back:
                del self._heard_at_ms[consumer]
                self._own_timeout_ms.pop(consumer, None)
            if is_over or is_back:
                self._unlisted.discard(consumer)
