"""The last lines that a task logged, kept on the server with its job, for whoever asks what it did.

    <queue>:log:<id>   list   'ms attempt level text', the oldest first; kept for an hour

A line costs its task an entry in a list. A thread, started with the first line, sends what was gathered a few
times a second, once: lines may be lost with their worker, the work may not wait for them. Of tasks that log
nothing nobody hears here. Each worker keeps the lines of a few new jobs in a second, so that a flood of quick
jobs that log fills nobody's memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.model.clock import Clock
from mqworker.model.names import MessageId
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.queues.work.queue import WorkQueue
from mqworker.redaction import masked_text
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store
from mqworker.tasks.context import current_context

script = scripts_of(__package__)

KEPT_MS = 3_600_000
MOST_BYTES = 8_192
LONGEST_LINE = 1_000
SEND_EVERY_S = 0.3
NEW_JOBS_PER_S = 10
_OWN_PART = "tasks"
_OWN_FACTS = frozenset({"task", "task_id", "queue", "attempt", "worker", "logger", "part", "exc_info"})


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a task logged."""

    at_ms: int
    attempt: int
    level: str
    text: str


def log_key(keys: WorkQueueKeys, message: MessageId) -> str:
    """list: see above."""
    return keys.named(f"log:{message}")


def read_log(queue: WorkQueue, message: MessageId) -> list[LogLine]:
    """What its task logged last, the oldest first; what somebody else wrote there is passed over."""
    key = log_key(queue.calls.keys, message)
    try:
        lines: RawReply = queue.store.send([("LRANGE", key, 0, -1)], key)[0]
    except StoreRefused:
        return []  # a foreign type in the place of ours
    return [line for each in lines if (line := _decoded(each)) is not None]


def _decoded(line: bytes) -> LogLine | None:
    at_ms, _, rest = line.decode(errors="replace").partition(" ")
    attempt, _, rest = rest.partition(" ")
    level, _, text = rest.partition(" ")
    if not (at_ms.isascii() and at_ms.isdecimal() and attempt.isascii() and attempt.isdecimal()):
        return None
    return LogLine(int(at_ms), int(attempt), level, text)


class JobLogs:
    """Gathers the lines of what runs here, and sends them beside."""

    def __init__(self, queue_of: Callable[[str], WorkQueue], clock: Clock, most_lines: int) -> None:
        self._queue_of = queue_of
        self._clock = clock
        self._most_lines = most_lines
        self._lock = threading.Lock()
        self._unsent: dict[tuple[str, MessageId], deque[bytes]] = {}
        self._known: deque[tuple[str, MessageId]] = deque(maxlen=1_000)
        """Jobs of which something was kept: they may say more."""
        self._second, self._new_in_second = 0, 0
        self._something_new = threading.Event()
        self._thread: threading.Thread | None = None

    # Any: structlog's own types of a processor.
    def watch(self, _logger: Any, method: str, facts: MutableMapping[str, Any]) -> MutableMapping[str, Any]:  # noqa: ANN401
        """For structlog: hears of each line, and leaves it as it is."""
        told = {name: value for name, value in facts.items() if name != "event" and name[:1] != "_"}
        self.note(method, facts.get("event", ""), told)
        return facts

    def note(self, level: str, event: object, facts: Mapping[str, object]) -> None:
        """A line was logged, by whomever; kept if a task runs here that may be meant."""
        context = current_context()
        if context is None or facts.get("part") == _OWN_PART:
            return
        job = (context.queue, context.id)
        text = _text(event, facts)
        line = f"{self._clock.now_ms()} {context.attempt} {level} {text}".encode(errors="replace")
        with self._lock:
            if job not in self._unsent and not self._may_begin(job):
                return
            self._unsent.setdefault(job, deque(maxlen=self._most_lines)).append(line)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_for_ever, name="job-log", daemon=True)
                self._thread.start()
        self._something_new.set()

    def _may_begin(self, job: tuple[str, MessageId]) -> bool:
        if job in self._known:
            return True
        second = self._clock.monotonic_ms() // 1000
        self._new_in_second = 0 if second != self._second else self._new_in_second
        self._second = second
        self._new_in_second += 1
        if self._new_in_second > NEW_JOBS_PER_S:
            return False
        self._known.append(job)
        return True

    def _send_for_ever(self) -> None:
        pause = threading.Event()
        while True:
            self._something_new.wait()
            pause.wait(SEND_EVERY_S)  # so that a task that says much is sent together
            self._something_new.clear()
            self.send()

    def send(self) -> None:
        """Send what was gathered, once."""
        with self._lock:
            unsent, self._unsent = self._unsent, {}
        for (queue, message), lines in unsent.items():
            work = self._queue_of(queue)
            _attempt(work.store, self._call(work.calls.keys, message, list(lines)))

    def _call(self, keys: WorkQueueKeys, message: MessageId, lines: list[bytes]) -> Call[int]:
        arguments: tuple[str | bytes | int, ...] = (KEPT_MS, self._most_lines, MOST_BYTES, *lines)
        return Call(script("keep_log"), (log_key(keys, message),), arguments, int)


def _attempt(store: Store, call: Call[int]) -> None:
    try:
        store.attempt(store.begin([call]))
    except (StoreUnavailable, StoreFull, StoreRefused):
        return  # a report about work, not the work


def _text(event: object, facts: Mapping[str, object]) -> str:
    """On one line, masked and cut; what a value does when it is looked at must not end the task."""
    try:
        told = " ".join(
            [str(event), *(f"{name}={value}" for name, value in facts.items() if name not in _OWN_FACTS)]
        )
    except Exception:  # noqa: BLE001 - foreign code
        told = "<a line that cannot be shown>"
    flat = masked_text(told).replace("\r", " ").replace("\n", " ↵ ")
    return flat if len(flat) <= LONGEST_LINE else f"{flat[: LONGEST_LINE - 1]}…"
