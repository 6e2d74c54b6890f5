"""Two network namespaces with one line between them that can be cut: TCP as it is, with nothing in between.

Only where root and iproute2 allow it. Nothing outside these namespaces is touched, and they go with the test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from types import TracebackType
from typing import Self

NEAR_ADDRESS, FAR_ADDRESS = "10.213.77.1", "10.213.77.2"
_NEAR_CARD, _FAR_CARD = "02:00:00:00:77:01", "02:00:00:00:77:02"


def why_not() -> str:
    """What is missing on this machine; '' when namespaces can be made."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (Debian: iproute2)"
    name = f"mqw-probe-{uuid.uuid4().hex[:6]}"
    made = _ip("netns", "add", name, check=False)
    if made.returncode:
        return f"network namespaces are not allowed here: {made.stderr.strip()}"
    line = _ip("link", "add", name[-13:], "netns", name, "type", "veth", "peer", "name", "p", check=False)
    _ip("netns", "del", name, check=False)
    return f"virtual lines are not allowed here: {line.stderr.strip()}" if line.returncode else ""


class NetworkNamespaces:
    """`near` and `far`, at the two ends of a line."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex[:6]
        self.near, self.far = f"mqw-near-{mark}", f"mqw-far-{mark}"

    def within(self, namespace: str) -> list[str]:
        """What a command begins with that is to run in a namespace."""
        return ["ip", "netns", "exec", namespace]

    def cut(self, seconds: float) -> None:
        """Let nothing pass for a while; nobody is told."""
        _ip("-n", self.near, "link", "set", "line", "down")
        try:
            time.sleep(seconds)
        finally:
            _ip("-n", self.near, "link", "set", "line", "up")

    def __enter__(self) -> Self:
        try:
            for namespace in (self.near, self.far):
                _ip("netns", "add", namespace)
            ends = (
                (self.near, NEAR_ADDRESS, FAR_ADDRESS, _FAR_CARD),
                (self.far, FAR_ADDRESS, NEAR_ADDRESS, _NEAR_CARD),
            )
            peer = ("peer", "name", "line", "address", _FAR_CARD, "netns", self.far)
            _ip("-n", self.near, "link", "add", "line", "address", _NEAR_CARD, "type", "veth", *peer)
            for namespace, address, other, card in ends:
                _ip("-n", namespace, "address", "add", f"{address}/30", "dev", "line")
                for device in ("lo", "line"):
                    _ip("-n", namespace, "link", "set", device, "up")
                # Looking for a neighbour in vain would tell TCP that the line is cut: it would give up early.
                _ip("-n", namespace, "neigh", "add", other, "lladdr", card, "dev", "line", "nud", "permanent")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        for namespace in (self.near, self.far):
            _ip("netns", "del", namespace, check=False)


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True, timeout=20)
