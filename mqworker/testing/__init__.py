"""For tests of applications: tasks run in memory, without a server, under a clock that the test moves."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mqworker.testing.bench import Bench
    from mqworker.testing.enqueued_calls import EnqueuedCall
    from mqworker.testing.memory_app import JobNotEnded
    from mqworker.testing.summary import Summary

# Imported when asked for: pytest imports the plugin beside this in every run of every project.
_MODULE_BY_NAME = {
    "Bench": "mqworker.testing.bench",
    "EnqueuedCall": "mqworker.testing.enqueued_calls",
    "JobNotEnded": "mqworker.testing.memory_app",
    "Summary": "mqworker.testing.summary",
}

__all__ = ["Bench", "EnqueuedCall", "JobNotEnded", "Summary"]


def __getattr__(name: str) -> object:
    if name in _MODULE_BY_NAME:
        return getattr(import_module(_MODULE_BY_NAME[name]), name)
    raise AttributeError(f"module 'mqworker.testing' has no attribute {name!r}")
