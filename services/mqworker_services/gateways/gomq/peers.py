"""The peers that called lately: how many there may be, and how often each may call. Pure; the time is given.

grpcio neither counts nor limits connections, so a peer counts as connected while it calls now and then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

_FORGOTTEN_AFTER_S = 60.0


@dataclass(slots=True)
class _Peer:
    heard_at_s: float
    permits: float


class PeerLimits:
    """Limits how many peers there are and how often each may call."""

    def __init__(self, most_peers: int, calls_each_second: int) -> None:
        """`calls_each_second` is for each peer; 0 for no limit."""
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
        """Forget peers that did not call for a while."""
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


_OWN_NAME = re.compile(r"[A-Za-z0-9.-]{1,64}", re.ASCII)


def peer_name(told: str, own_name: str | None, user: str | None = None) -> str:
    """`127.0.0.1:46354` for `ipv4:127.0.0.1:46354`, `[::1]:49806` for `ipv6:%5B::1%5D:49806`.

    A unix socket has neither address nor port, and grpcio does not tell its connections apart. Clients do
    that themselves, by a name of their own in the metadata; those that give none are one peer.
    """
    scheme, _, address = unquote(told).partition(":")
    if scheme == "unix":
        is_fit = own_name is not None and _OWN_NAME.fullmatch(own_name)
        name = own_name if is_fit else "anonymous"
        return f"unix:{name}" if user is None else f"unix:{user.replace('_', '-')}/{name}"
    # A zone may have any name, and '_' joins the names of keys.
    return address.replace("_", "-") or scheme or "unknown"
