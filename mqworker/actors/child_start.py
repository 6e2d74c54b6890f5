"""What a child is told at its start: plain data, made by the supervisor, the same under fork and spawn."""

from __future__ import annotations

from dataclasses import dataclass, field

from mqworker.settings import Settings


@dataclass(frozen=True, slots=True)
class ChildStart:
    """Everything an actor needs to know before its first mail."""

    settings: Settings
    redis_url: str = field(repr=False)  # may hold a password
    node: str
    consumer: str
    """The name under which this node holds leases: the same for every generation of the dispatcher."""
    name: str
    generation: int
    parent_pid: int
    app: str | None
    """What to import, as module:attribute; only workers do."""
    slots_path: str
    """The file of the run slots; see `run_slot.py`."""
    workers: tuple[str, ...] = ()
    """For a dispatcher: the workers that live already, and may hold what the one before it gave them."""
    node_lock: int | None = None
    """The descriptor to keep open for as long as this process lives; see `node_file.py`."""
