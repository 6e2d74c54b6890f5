"""The audit: who did what from the console or by a command, when, and to how many.

<namespace>:audit   stream   mark, who, action, queue, what, count, outcome, command; capped at KEPT, about
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass

from mqworker.operate.system import System
from mqworker.store.script import Call, RawReply, scripts_of

script = scripts_of(__package__)

KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Deed:
    """What was done."""

    who: str
    action: str
    queue: str
    what: str
    """An id, a cause, or nothing where the queue itself was meant."""
    count: int
    outcome: str
    command: str
    """The command that does the same."""


@dataclass(frozen=True, slots=True)
class NotedDeed:
    """A deed and when it was noted, by the server's clock."""

    at_ms: int
    deed: Deed


def audit_key(namespace: str) -> str:
    """stream: see above."""
    return f"{namespace}:audit"


def note(system: System, deed: Deed) -> None:
    """Write it down, once."""
    fields: list[str] = [text for name, value in asdict(deed).items() for text in (name, str(value))]
    arguments: tuple[str | bytes | int, ...] = (KEPT, secrets.token_hex(8), *fields)
    system.store.run(Call(script("note"), (audit_key(system.settings.namespace),), arguments, int))


def read_audit(system: System, count: int = 200) -> list[NotedDeed]:
    """The newest deeds, the newest first."""
    key = audit_key(system.settings.namespace)
    entries: RawReply = system.store.send([("XREVRANGE", key, "+", "-", "COUNT", count)], key)[0]
    return [_noted(entry_id, fields) for entry_id, fields in entries or []]


def _noted(entry_id: bytes, fields: list[bytes]) -> NotedDeed:
    texts = [each.decode(errors="replace") for each in fields]
    told = dict(zip(texts[::2], texts[1::2], strict=False))
    count = told.get("count", "0")
    deed = Deed(
        told.get("who", ""),
        told.get("action", ""),
        told.get("queue", ""),
        told.get("what", ""),
        int(count) if count.isdecimal() else 0,
        told.get("outcome", ""),
        told.get("command", ""),
    )
    return NotedDeed(int(entry_id.split(b"-")[0]), deed)
