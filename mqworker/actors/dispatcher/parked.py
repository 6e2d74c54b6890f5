"""What a node cannot run: it sets aside what nobody here knows, and claims what others set aside."""

from __future__ import annotations

from collections.abc import Iterable

from mqworker.actors.dispatcher.hand_out import Shelf
from mqworker.actors.dispatcher.lost_workers import set_aside
from mqworker.actors.dispatcher.queue import DispatchedQueue
from mqworker.actors.dispatcher.workers import Crew
from mqworker.log import Logger
from mqworker.model.record import task_of

_PARKED = b"parked "
"""How a wake-up begins that names a task which somebody could not run (parts/parked.lua)."""
_MOST_NAMED = 1_000


class Parking:
    """Both halves; the shelf finds what nobody knows, the queues claim what was set aside."""

    def __init__(self, crew: Crew, shelf: Shelf, log: Logger) -> None:
        self._crew = crew
        self._shelf = shelf
        self._log = log
        self._named: set[bytes] = set()

    def set_aside(self) -> None:
        """Park what was not handed out because nobody here knows its task."""
        for queue, claimed in self._shelf.take_unknown():
            queue.settle([set_aside(claimed.fence, claimed.record)])
            task = task_of(claimed.record)
            if task not in self._named and len(self._named) < _MOST_NAMED:  # once: there may be thousands
                self._named.add(task)
                self._log.warning("task_unknown", queue=queue.name, task=task.decode(errors="replace"))

    def look(self, queues: Iterable[DispatchedQueue]) -> None:
        """Let the next claims ask for what others set aside."""
        known = self._crew.known_versions()
        for queue in queues:
            queue.look_for_parked(known)

    def hear(self, queue: DispatchedQueue, text: bytes) -> bool:
        """Whether a wake-up tells of something that was set aside; looks for it if it is known here."""
        is_told = text.startswith(_PARKED)
        if is_told and self._crew.knows(text.removeprefix(_PARKED)):
            self.look([queue])
        return is_told
