"""Patience: when a connection is closed because its client takes too long. Pure; the times are given."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_FRAME_S = 60.0
"""A frame that was begun must be complete by then, however slowly it comes."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may take."""

    handshake_s: float
    """To show the token, where one is asked for."""
    idle_s: float
    """To say the next thing; 0: as long as it likes."""

    def is_over(
        self,
        now_s: float,
        *,
        joined_at_s: float,
        heard_at_s: float,
        begun_at_s: float | None,
        is_stranger: bool,
        is_waiting_for_us: bool,
    ) -> bool:
        """Whether it is closed now. Bytes that trickle in are no excuse for a frame that never ends."""
        is_slow = begun_at_s is not None and now_s - begun_at_s > LONGEST_FRAME_S
        is_late = is_stranger and now_s - joined_at_s > self.handshake_s
        is_idle = 0 < self.idle_s < now_s - heard_at_s and not is_waiting_for_us
        return is_slow or is_late or is_idle
