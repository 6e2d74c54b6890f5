"""How many run at once, of each limit: seen, changed at run time, closed and opened by people.

What is set here counts in place of what the code says, for all nodes and from the next start on, until it is
lifted. A name is what `mqworker limit show` prints: the task, behind a colon the value of its key; `@` for
the queue as a whole; `$name` for a limit that queues share.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.limits import SHARED
from mqworker.model.names import QueueName, shown, whole_number
from mqworker.model.running import MOST_RUNNING
from mqworker.operate.system import System
from mqworker.queues.work.calls import WorkQueueCalls, WorkQueueOptions
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.command import Command
from mqworker.store.script import RawReply

MOST_SHOWN = 1_000
LONGEST_CLOSED_MS = 366 * 24 * 3_600_000
_SLOT = re.compile(r"([^=|<!]+)<=(\d+)")
_NAME = re.compile(r"[!-~]{1,300}", re.ASCII)
_CLOSED = re.compile(rb"(\d+)( half)?")


@dataclass(frozen=True, slots=True)
class SlotView:
    """One limit on how many run at once, or a key that is closed."""

    name: str
    running: int
    most: int | None
    """How many may; None where nothing that runs or waits says so."""
    is_set: bool
    """Whether that was said at run time."""
    closed_ms: int
    """For how long it is closed still; 0: it is not."""
    is_half_open: bool
    """Whether one call at a time may try, after a circuit breaker had closed it."""


def read_slots(system: System, queue: str, waiting: Iterable[str], at_ms: int) -> tuple[SlotView, ...]:
    """Those of a queue that run, are set or are closed; `waiting` are combinations of limits that wait."""
    keys = WorkQueueKeys.of(system.settings.namespace, QueueName(queue))
    texts = list(waiting)
    homes = [keys.prefix, *_shared_homes(system.settings.namespace, texts)]
    limits_of_held: RawReply = _ask(system, ("HRANDFIELD", keys.named("slots"), MOST_SHOWN, "WITHVALUES"))
    texts += [each.decode(errors="replace").partition(" ")[2] for each in (limits_of_held or [])[1::2]]
    most_by_name = {name: int(most) for text in texts for name, most in _SLOT.findall(text)}
    views: dict[str, SlotView] = {}
    for home in homes:
        views |= _views(system, home, most_by_name, at_ms)
    return tuple(sorted(views.values(), key=lambda view: (-view.closed_ms, -view.running, view.name)))[
        :MOST_SHOWN
    ]


def set_limit(system: System, queue: str, name: str, most: int | None) -> None:
    """Let so many run at once, whatever the code says; None goes by the code again."""
    if most is not None:
        whole_number("count", most, least=1, most=MOST_RUNNING)
    system.store.run(_calls(system, queue).set_limit(_checked(name), most))


def close_limit(system: System, queue: str, name: str, for_ms: int, why: str) -> bool:
    """Start nothing that has this name among its limits, for so long; 0 opens it. Whether that changed it."""
    whole_number("for", for_ms, least=0, most=LONGEST_CLOSED_MS)
    return system.store.run(_calls(system, queue).close([_checked(name)], for_ms, why=why)) > 0


def _views(system: System, home: str, most_by_name: Mapping[str, int], at_ms: int) -> dict[str, SlotView]:
    """By name. Of very many the server picks some."""
    running, given, closed = (
        _pairs(_ask(system, ("HRANDFIELD", f"{home}{each}", MOST_SHOWN, "WITHVALUES")))
        for each in ("running", "set", "closed")
    )
    names = {name for name in (*running, *given, *closed) if " " not in name and not name.endswith("!")}
    views: dict[str, SlotView] = {}
    for name in names | (set(most_by_name) if home.endswith("}:") and "{limit:" not in home else set()):
        if (name[0] == SHARED) != ("{limit:" in home):
            continue
        found = _CLOSED.fullmatch(closed.get(name, b""))
        until_ms = int(found[1]) if found else 0
        is_half = bool(found and found[2])
        if name in running or name in given or until_ms > at_ms or is_half or name in most_by_name:
            views[name] = SlotView(
                name,
                int(running.get(name, b"0")),
                int(given[name]) if name in given else most_by_name.get(name),
                name in given,
                max(0, until_ms - at_ms),
                is_half and until_ms <= at_ms,
            )
    return views


def _shared_homes(namespace: str, limits: Iterable[str]) -> list[str]:
    names = {part.partition(":")[0].partition("<")[0] for text in limits for part in text.split("|")}
    return [f"{namespace}:{{limit:{name[1:]}}}:" for name in sorted(names) if name.startswith(SHARED)]


def _pairs(reply: RawReply) -> dict[str, bytes]:
    flat = reply or []
    return {name.decode(errors="replace"): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _ask(system: System, command: Command) -> RawReply:
    return system.store.send([command], str(command[1]))[0]


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"limit is {shown(name)}; accepted is a name that `mqworker limit show` prints, such as "
            "shop.send_mail:acme"
        )
    return name


def _calls(system: System, queue: str) -> WorkQueueCalls:
    settings = system.settings
    return WorkQueueCalls(QueueName(queue), WorkQueueOptions(settings.namespace, settings.events_kept))
