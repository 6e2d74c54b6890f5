"""The node's notice: its snapshot in Redis, for `status` wherever it is typed.

Every actor can write it, and the supervisor picks one that lives: a node whose heartbeat reaper keeps dying
is seen all the same, and says so. The loop (actor.py) calls it, since it is not an actor's own business.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

from mqworker.actors.mail import NodeSnapshot
from mqworker.errors import ConfigurationError, MqworkerError, StoreUnavailable
from mqworker.model.quarantine import Quarantine
from mqworker.queues.work.keys import SNAPSHOT_TTL_MS, node_key, nodes_key
from mqworker.store.outage import OUTAGE_ROUND_MS
from mqworker.store.store import Store


class NodeNotice:
    """Writes the snapshots that the supervisor sends to this process."""

    def __init__(self, open_store: Callable[[], Store], namespace: str, quarantine: Quarantine) -> None:
        """The store is opened when the first snapshot comes: most actors never get one."""
        self._open_store = open_store
        self._namespace = namespace
        self._quarantine = quarantine
        self._store: Store | None = None
        self._written: str | None = None
        self._next_ms = 0

    def write(self, mail: NodeSnapshot, now_ms: int) -> bool:
        """Show the node as it is; whether the server has it."""
        if now_ms < self._next_ms:
            return False  # the server hangs: asking it takes long, and this process has other work
        self._store = self._store or self._open_store()
        key, nodes = node_key(self._namespace, mail.node), nodes_key(self._namespace)
        shown = ("SET", key, json.dumps(mail.facts), "PX", SNAPSHOT_TTL_MS)
        try:
            for reply in self._store.send_each([shown, ("SADD", nodes, mail.node)], [key, nodes]):
                if isinstance(reply, MqworkerError):
                    raise reply
        except ConfigurationError:
            raise
        except StoreUnavailable:
            self._next_ms = now_ms + OUTAGE_ROUND_MS
            return False
        except MqworkerError as error:
            self._quarantine.note("step", "show node", error)
            return False
        self._written = key
        return True

    def remove(self) -> None:
        """The node ends in good order: nobody need wait until the snapshot is too old."""
        if self._store is not None and self._written is not None:
            with suppress(StoreUnavailable):  # it ends by itself a little later
                self._store.send([("DEL", self._written)], self._written)
