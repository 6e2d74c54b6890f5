"""Procedures: several steps with the server, written once as a generator and followed by both stores.

A procedure yields what to ask and is sent the answer; it does no I/O of its own, so the same text serves
synchronous and asynchronous callers. A step is a call of a script, or plain commands.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from mqworker.store.command import Command
from mqworker.store.script import Call


@dataclass(frozen=True, slots=True)
class Commands:
    """Plain commands in one round trip: reads, and writes that do no harm when they are sent twice."""

    commands: tuple[Command, ...]
    key: str | None


ResultT = TypeVar("ResultT")

Step = Call[Any] | Commands
Procedure = Generator[Step, Any, ResultT]
"""Any: each answer has the type of the question, which a generator's type cannot say."""
