"""The peers that called lately: how many there may be, and how often each may call. Pure; the time is given.

grpcio neither counts nor limits connections, so a peer counts as connected while it calls now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

_FORGOTTEN_AFTER_S = 60.0


@dataclass(slots=True)
class _Peer:
    heard_at_s: float
    permits: float


class PeerBook:
    """Admits calls, or says why not."""

    def __init__(self, most_peers: int, calls_each_second: int) -> None:
        """`calls_each_second` is for each peer; 0 for as many as it likes."""
        self._most_peers = most_peers
        self._rate = calls_each_second
        self._peers: dict[str, _Peer] = {}

    def __len__(self) -> int:
        return len(self._peers)

    def refusal(self, name: str, now_s: float) -> str | None:
        """Why this peer may not call now; None when it may, and then it is noted."""
        peer = self._peers.get(name)
        if peer is None:
            if len(self._peers) >= self._most_peers:
                self.forget_silent(now_s)
            if len(self._peers) >= self._most_peers:
                return f"{self._most_peers} peers are served at the most; try again later"
            peer = self._peers[name] = _Peer(now_s, float(self._rate))
        if self._rate and not self._takes_permit(peer, now_s):
            return f"{self._rate} calls a second are accepted from one peer; try again later"
        peer.heard_at_s = now_s
        return None

    def forget_silent(self, now_s: float) -> None:
        """Strike out who did not call for a while."""
        self._peers = {
            name: peer for name, peer in self._peers.items() if now_s - peer.heard_at_s < _FORGOTTEN_AFTER_S
        }

    def _takes_permit(self, peer: _Peer, now_s: float) -> bool:
        earned = (now_s - peer.heard_at_s) * self._rate
        peer.permits = min(float(self._rate), peer.permits + earned)
        peer.heard_at_s = now_s
        if peer.permits < 1:
            return False
        peer.permits -= 1
        return True
