"""Progress of long work: one line that changes on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO

from mqworker import App

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLEAR: Final = "\r\x1b[K"
_LOOK_EVERY_S: Final = 0.5
_MS: Final = 1000


class Progress:
    """Tells how far something is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._clock = App("pipeline").clock
        self._began_ms = self._clock.monotonic_ms()
        self._total = 0

    def count_batch(self, batch: int, events: int) -> None:
        """One more batch of the archive is in place."""
        self._total += events
        elapsed_s = max(1, self._clock.monotonic_ms() - self._began_ms) / _MS
        self.say(
            f"batch {batch}: {events:,} events; {self._total:,} in all, {self._total / elapsed_s:,.0f}/s"
        )

    def say(self, text: str) -> None:
        """What stands on the line now."""
        self._stream.write(f"{_CLEAR}{text}" if self._is_terminal else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line to others."""
        if self._is_terminal:
            self._stream.write(_CLEAR)
            self._stream.flush()

    @property
    def total(self) -> int:
        """Events of all batches."""
        return self._total

    @contextmanager
    def watching(self, spark: SparkSession, verb: str) -> Iterator[None]:
        """On a terminal, show how many parts of the running Spark job are done."""
        done = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(spark, verb, done), daemon=True)
        if self._is_terminal:
            watcher.start()
        try:
            yield
        finally:
            done.set()
            if self._is_terminal:
                watcher.join()
            self.end()

    def _watch(self, spark: SparkSession, verb: str, done: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not done.wait(_LOOK_EVERY_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            parts = sum(stage.numTasks for stage in stages if stage)
            finished = sum(stage.numCompletedTasks for stage in stages if stage)
            if parts:
                self.say(f"{verb}: {finished} of {parts} parts, {100 * finished // parts} %")
