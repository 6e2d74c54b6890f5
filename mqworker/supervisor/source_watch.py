"""Source watch: notices that a file of the application changed, for `mqworker run --reload`."""

from __future__ import annotations

import os
from pathlib import Path

_LOOK_EVERY_MS = 500
_MOST_FILES = 5_000
_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


class SourceWatch:
    """Looks at the times of all Python files below a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = _changed_at_ns(directory)
        self._next_look_ms = 0

    def has_changed(self, now_ms: int) -> bool:
        """Whether a file was written, added or removed since the last time this said so."""
        if now_ms < self._next_look_ms:
            return False
        self._next_look_ms = now_ms + _LOOK_EVERY_MS
        seen = _changed_at_ns(self._directory)
        has_changed = seen != self._seen
        self._seen = seen
        return has_changed


def watch_application(app: str | None, directory: Path) -> SourceWatch:
    """Look at the files of an app from now on."""
    return SourceWatch(directory if app is None else application_directory(app, directory))


def application_directory(app: str, directory: Path) -> Path:
    """Where the files of `module:attribute` lie: its package below `directory`, or `directory` itself."""
    package = directory / app.partition(":")[0].partition(".")[0]
    return package if package.is_dir() else directory


def _changed_at_ns(directory: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
        for name in files:
            if name.endswith(".py"):
                path = Path(folder, name)
                found[str(path)] = _mtime_ns(path)
        if len(found) > _MOST_FILES:
            break
    return found


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0  # removed a moment ago
