"""Child plans: what a topology is made of. Pure data; the list itself stands in `topology.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox

StartFunction = Callable[[Mailbox, ChildStart], int]
"""Runs an actor until it is done; what it returns is the exit code. A function of a module, so that it can
be named to a spawned process."""


class Role(Enum):
    """The role of a child, as far as the supervisor treats it differently."""

    SERVER = auto()
    """Keeps the embedded server up: started first, stopped last."""
    ACTOR = auto()
    """Restarted alone; the others go on."""
    REAPER = auto()
    """An actor that is told which consumers of this node live, and how the node is."""
    DISPATCHER = auto()
    """What workers run is leased to it: when it dies they go on, and the next one adopts what they hold."""
    WORKER = auto()
    """Runs user code: may be silent for hours, and may die of it."""
    GATEWAY = auto()
    """Lets foreign programs in: started last, stopped first; what it holds is leased to itself."""
    MONITOR = auto()
    """Tells outsiders how the node is: nobody waits for it, and the node is complete without it."""


@dataclass(frozen=True, slots=True)
class ChildPlan:
    """One child: its name, its role, what it runs, and which children it has a pipe to."""

    name: str
    role: Role
    start: StartFunction
    peers: tuple[str, ...] = ()
    check_import: StartFunction | None = None
    """Does what could fail in a start, and ends: run before running children are replaced."""


Topology = tuple[tuple[ChildPlan, ...], ...]
"""In start order; the children of one step start together, once all those before them are ready."""
