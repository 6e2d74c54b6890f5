"""Procedures: several steps with the server, written once as a generator and followed by both stores.

A procedure yields what to ask and is sent the answer; it does no I/O of its own, so the same text serves
synchronous and asynchronous callers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from mqworker.store.command import Command
from mqworker.store.script import Call


@dataclass(frozen=True, slots=True)
class Read:
    """Plain commands that may be sent twice without harm, in one round trip."""

    commands: tuple[Command, ...]
    key: str | None


ResultT = TypeVar("ResultT")

Step = Call[Any] | Read
Procedure = Generator[Step, Any, ResultT]
"""Any: each answer has the type of the question, which a generator's type cannot say."""
