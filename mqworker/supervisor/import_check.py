"""Import check: a process that imports the application and ends, before running workers are replaced.

Workers are stopped only when their successors can start. If the code does not import, the node logs it and
keeps the workers it has.
"""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable
from contextlib import suppress

from mqworker.log import Logger
from mqworker.supervisor.child import Child, start_child
from mqworker.supervisor.child_plan import StartFunction
from mqworker.supervisor.node import Node
from mqworker.supervisor.plain_reasons import reason_of

_NAME = "import_check"

OnEnd = Callable[[str | None, int], None]
"""Called with what is wrong with the code, None when it imports; and the time."""


class ImportCheck:
    """At most one runs; a new one replaces it."""

    def __init__(self, node: Node, selector: selectors.BaseSelector, *, longest_ms: int, log: Logger) -> None:
        self._node = node
        self._selector = selector
        self._longest_ms = longest_ms
        self._log = log
        self._child: Child | None = None
        self._began_at_ms = 0

    def begin(self, run: StartFunction, now_ms: int, on_end: OnEnd) -> None:
        """Start the process; `on_end` is called when it is over."""
        self.close()
        start = self._node.child_start(_NAME, 0, "")
        try:
            child = start_child(run, start)
        except OSError as error:
            on_end(f"no process could be started to import it: {reason_of(error)}", now_ms)
            return
        self._child, self._began_at_ms = child, now_ms
        self._selector.register(
            child.process.fileno(),
            selectors.EVENT_READ,
            lambda at_ms: self._collect(child, at_ms, on_end),
        )

    def turn(self, now_ms: int) -> None:
        """Kill an import that takes too long."""
        if self._child is not None and now_ms - self._began_at_ms >= self._longest_ms:
            self._child.process.send(signal.SIGKILL)

    def close(self) -> None:
        """Kill the process, if one runs."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(KeyError):
            self._selector.unregister(child.process.fileno())
        child.process.send(signal.SIGKILL)
        while child.process.reap() is None:
            pass  # it was killed: this takes no time
        child.close()

    def _collect(self, child: Child, now_ms: int, on_end: OnEnd) -> None:
        ending = child.reap() if child is self._child else None
        if ending is None:
            return
        self._child = None
        self._selector.unregister(child.process.fileno())
        child.close()
        on_end(None if ending.code == 0 else ending.words or ending.cause, now_ms)
