"""The node: the names of one supervisor and its children, and what every child is told about it."""

from __future__ import annotations

import os
import re
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path

from mqworker.actors.child_start import ChildStart
from mqworker.actors.node_file import lock_node_file, node_file
from mqworker.settings import Settings
from mqworker.store.embedded.state import ServerPlace

_LONGEST_HOST = 48


@dataclass(frozen=True, slots=True)
class Node:
    """One supervisor's identity. `boot` is new for each start: names and pids come back, leases must not."""

    settings: Settings
    name: str
    boot: str
    app: str | None
    slots_path: str
    lock: int | None = None
    """The descriptor that holds the lock of the node's file; children inherit it."""

    @property
    def redis_url(self) -> str:
        """The user's server, or the embedded one; the latter's place is known once it runs."""
        return self.settings.redis_url or ServerPlace(self.settings.data_dir.resolve()).url

    @property
    def consumer(self) -> str:
        """The consumer that every dispatcher of this node is: each takes over what the last one held."""
        return f"{self.name}.{self.boot}.1"

    def gateway_consumer(self, gateway: str, generation: int) -> str:
        """The consumer that a gateway of this generation is, where it takes deliveries."""
        return f"{self.name}.{self.boot}.{gateway.partition(':')[2]}-{generation}"

    def child_start(
        self, name: str, generation: int, consumer: str, workers: tuple[str, ...] = ()
    ) -> ChildStart:
        """What one child is told."""
        return ChildStart(
            settings=self.settings,
            redis_url=self.redis_url,
            node=self.name,
            consumer=consumer,
            name=name,
            generation=generation,
            parent_pid=os.getpid(),
            app=self.app,
            slots_path=self.slots_path,
            workers=workers,
            node_lock=self.lock,
        )


def make_node(settings: Settings, app: str | None, directory: Path) -> Node:
    """The node that this process is about to be; its files lie in `directory`."""
    name = settings.node or f"{_host()}-{os.getpid()}"
    boot = secrets.token_hex(4)
    path = node_file(directory, boot)
    return Node(settings, name, boot, app, str(path), lock_node_file(path))


def _host() -> str:
    """The host's name with nothing in it that a consumer's name must not have."""
    plain = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname().partition(".")[0])
    return plain.strip("-")[:_LONGEST_HOST] or "node"
