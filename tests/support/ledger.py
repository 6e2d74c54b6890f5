"""Ledgers: lines that processes write down before they are killed, and tests read.

Each line is appended by one small write; the kernel keeps what was written before a kill -9.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

LONGEST_LINE_BYTES = 4_096
SUFFIX = ".ledger"

Line = tuple[str, ...]


class LedgerWriter:
    """Appends lines for this process; a fork gets a file of its own, unless all share one by `name`."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self._folder = folder
        self._name = name
        self._pid = 0
        self._file = -1

    def note(self, kind: str, *words: object) -> None:
        """One line, in one write."""
        self.note_all([(kind, *words)])

    def note_all(self, lines: Iterable[Sequence[object]]) -> None:
        """Many lines; each is in one write with its neighbours or alone, never torn."""
        piece = b""
        for line in lines:
            text = (" ".join(map(str, line)) + "\n").encode()
            if len(piece) + len(text) >= LONGEST_LINE_BYTES:
                os.write(self._descriptor(), piece)
                piece = b""
            piece += text
        os.write(self._descriptor(), piece)

    def note_run(self, kind: str, key: str, message: str, attempt: int, fence: int) -> None:
        """A task began (E) or reached its end (F)."""
        at_ms = time.monotonic_ns() // 1_000_000
        os.write(
            self._descriptor(),
            f"{kind} {key} {message} {attempt} {fence} {os.getpid()} {at_ms}\n".encode(),
        )

    def _descriptor(self) -> int:
        if self._pid != os.getpid():
            path = self._folder / f"{self._name or f'{os.getpid()}-{time.monotonic_ns()}'}{SUFFIX}"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            self._pid = os.getpid()  # last: another thread that looks meanwhile opens one too
        return self._file


def read_ledger(folder: Path) -> list[Line]:
    """All lines of all processes; a process may be in the middle of one."""
    return [line for file in folder.glob(f"*{SUFFIX}") for line in read_lines(file)]


def read_lines(file: Path) -> list[Line]:
    """The lines of one file; none while it is not there."""
    text = file.read_text() if file.exists() else ""
    return [tuple(line.split(" ")) for line in text[: text.rfind("\n") + 1].splitlines()]


def ledger_bytes(folder: Path) -> int:
    """Grows with every line: a cheap way to see that work goes on."""
    return sum(file.stat().st_size for file in folder.glob(f"*{SUFFIX}"))
