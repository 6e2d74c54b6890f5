"""For tests of applications: tasks run in memory, without a server, under a clock that the test moves."""

from mqworker.testing.bench import Bench
from mqworker.testing.notebook import EnqueuedCall
from mqworker.testing.seat import JobNotEnded
from mqworker.testing.summary import Summary

__all__ = ["Bench", "EnqueuedCall", "JobNotEnded", "Summary"]
