"""A Sentry of the test's own: takes envelopes over HTTP and keeps their items."""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.support.http_receiver import HttpReceiver


class SentryReceiver(HttpReceiver):
    """Keeps events, transactions and check-ins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: list[tuple[str, dict[str, Any]]] = []
        super().__init__(self._take)

    @property
    def dsn(self) -> str:
        """For `sentry_sdk.init`."""
        return f"http://key@{self.address}/1"

    def items(self, kind: str) -> list[dict[str, Any]]:
        """What arrived of one kind: event, transaction, check_in."""
        with self._lock:
            return [item for each, item in self._items if each == kind]

    def _take(self, _path: str, envelope: bytes) -> tuple[int, bytes]:
        _, *lines = envelope.split(b"\n")
        with self._lock:
            for header, payload in zip(lines[::2], lines[1::2], strict=False):
                self._items.append((json.loads(header)["type"], json.loads(payload)))
        return 200, b"{}"
