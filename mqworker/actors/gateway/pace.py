"""How much goes through a gateway each second, from its totals at two instants. Pure; the time is given."""

from __future__ import annotations


class GatewayPace:
    """Asked now and then, it says how fast the totals grew since it was asked before."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def rates(self, taken_in: int, given_out: int, now_ms: int) -> dict[str, float]:
        """`in_per_s` and `out_per_s`, nothing the first time."""
        before, self._before = self._before, (now_ms, taken_in, given_out)
        if before is None or now_ms <= before[0]:
            return {"in_per_s": 0.0, "out_per_s": 0.0}
        seconds = (now_ms - before[0]) / 1000
        return {
            "in_per_s": round((taken_in - before[1]) / seconds, 1),
            "out_per_s": round((given_out - before[2]) / seconds, 1),
        }
