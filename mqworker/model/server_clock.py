"""The server's clock, compared with one that nobody sets: whether it was set, and by how much. Pure."""

LEAST_STEP_MS = 1_000
"""Less may be the time that an answer took."""


class ServerClock:
    """Notes what the server said, and when it was asked."""

    def __init__(self) -> None:
        self.steps = 0
        """How often it was set, as far as anybody looked."""
        self._latest: tuple[int, int] | None = None
        """By how much it was set the last time, and when."""
        self._known: tuple[int, int, int] | None = None

    def note(self, server_ms: int, asked_at_ms: int, answered_at_ms: int) -> int:
        """By how much it was set since it was last asked: below 0 back, above 0 forward; 0 not at all.

        Asked and answered are by the monotonic clock: the server read its own some time between the two.
        """
        known, self._known = self._known, (server_ms, asked_at_ms, answered_at_ms)
        if known is None:
            return 0
        known_ms, known_asked_ms, known_answered_ms = known
        least_ms, most_ms = asked_at_ms - known_answered_ms, answered_at_ms - known_asked_ms
        passed_ms = server_ms - known_ms
        step_ms = passed_ms - min(max(passed_ms, least_ms), most_ms)
        if abs(step_ms) < LEAST_STEP_MS:
            return 0
        self.steps += 1
        self._latest = (step_ms, answered_at_ms)
        return step_ms

    def latest_step(self, now_ms: int) -> dict[str, int] | None:
        """The last time that it was set: by how much, and how long ago; now is by the monotonic clock."""
        if self._latest is None:
            return None
        step_ms, noted_at_ms = self._latest
        return {"by_ms": step_ms, "ago_ms": now_ms - noted_at_ms}
