"""The mail thread: reads and sends a worker's mail while its main thread is inside a task that takes long.

One lock says whose turn it is. The main thread holds it all the time, except inside a task; the mail thread
takes it only when the same task has been running for a while. So the pipes, the report and the deliveries
that wait are never touched by two, no signal is needed, and a task never notices.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

SLOW_AFTER_MS = 10
"""About so long may a task keep its worker from its mail, as long as a batch should take; then mail is looked
at this often, until the task ends."""
_REST_AFTER = 20
"""After this many looks at a worker without tasks, the thread sleeps until the next task begins."""


class MailThread:
    """Lives as long as its process. Made by the main thread, which holds the lock from then on.

    Around each task the main thread calls `enter_task` and `leave_task`: nothing but the lock, for that is
    done thousands of times a second. Around several of them it calls `begin_stint` and `end_stint`.
    """

    def __init__(
        self,
        serve: Callable[[], None],
        count_finished: Callable[[], int],
        *,
        slow_after_s: float = SLOW_AFTER_MS / 1000,
    ) -> None:
        """`serve` reads, answers and sends all mail there is, without waiting.

        `count_finished` grows with each task that ends: the same number twice means the same task.
        """
        self._serve = serve
        self._count_finished = count_finished
        self._shortest_s = self._slow_after_s = slow_after_s
        self._turn = threading.Lock()
        self._turn.acquire()
        self.enter_task: Callable[[], object] = self._turn.release
        """By the main thread: from here on somebody else may read and send mail."""
        self.leave_task: Callable[[], object] = self._turn.acquire
        """By the main thread: waits until mail that is being read is handled."""
        self._is_in_stint = False
        self._is_resting = True
        self._wake_ups: SimpleQueue[None] = SimpleQueue()
        self._trouble: BaseException | None = None
        threading.Thread(target=self._watch, name="mail", daemon=True).start()

    def be_patient(self, times: float) -> None:
        """By the main thread: a task is slow after so many times as long as usual."""
        self._slow_after_s = times * self._shortest_s

    def begin_stint(self) -> None:
        """By the main thread: tasks follow."""
        self._is_in_stint = True
        if self._is_resting:
            self._is_resting = False
            self._wake_ups.put(None)

    def end_stint(self) -> None:
        """By the main thread: no task for now. Raises what went wrong in the mail thread."""
        self._is_in_stint = False
        if self._trouble is not None:
            raise self._trouble

    def _watch(self) -> None:
        while self._trouble is None:
            self._wake_ups.get()
            looks_in_vain = 0
            while looks_in_vain < _REST_AFTER and self._trouble is None:
                looks_in_vain = 0 if self._look() else looks_in_vain + 1
                if looks_in_vain == _REST_AFTER:
                    self._is_resting = True
                    # The main thread says that it is in a stint before it looks whether to wake us up. So if
                    # it saw us awake a moment ago, we see its stint here.
                    if self._is_in_stint:
                        self._is_resting, looks_in_vain = False, 0

    def _look(self) -> bool:
        """Serve if one and the same task took the whole time; False when the main thread has no tasks."""
        was_in_task, finished = not self._turn.locked(), self._count_finished()
        time.sleep(self._slow_after_s)
        if not was_in_task or finished != self._count_finished() or not self._turn.acquire(blocking=False):
            return self._is_in_stint
        try:
            if finished == self._count_finished():
                self._serve()
        except BaseException as error:  # noqa: BLE001 - the main thread raises it, and the process ends
            self._trouble = error
        finally:
            self._turn.release()
        return True
