"""What `mqworker doctor` finds: clocks, connections, open files, memory, persistence, silent nodes.

Pure but for `read_facts`: each finding says what is so and what to do about it.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mqworker.model.clock import SystemClock
from mqworker.model.outbox_view import outbox_in
from mqworker.model.view import NodeView
from mqworker.operate.system import System
from mqworker.operate.wording import duration, size
from mqworker.store.server_check import fields_of, whole_number

CLOCK_OFF_MS = 2_000
FULL_SHARE = 0.8
FEWEST_FILES = 1_024
SILENT_MS = 10_000
"""Nodes write their snapshot every second."""
_SECTIONS = ("clients", "memory", "persistence")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that will hurt, and what to do."""

    what: str
    told: str
    advice: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What is looked at."""

    clock_ahead_ms: int
    """By how much the server's clock is ahead of the one here; below zero: behind."""
    open_files: int
    """How many files and connections a process may have that is started like this one."""
    primaries: Mapping[str, Mapping[str, str]]
    """INFO of each, by its name."""


def read_facts(system: System) -> Facts:
    """Ask the server and this machine."""
    clock = SystemClock()
    before_ms = clock.now_ms()
    server_ms = system.now_ms()
    here_ms = (before_ms + clock.now_ms()) // 2  # a slow answer counts half on each way
    replies = system.store.connection.each_primary([("INFO", section) for section in _SECTIONS])
    primaries = {name: fields_of(each) for name, each in replies.items()}
    return Facts(server_ms - here_ms, resource.getrlimit(resource.RLIMIT_NOFILE)[0], primaries)


def find(facts: Facts, nodes: Sequence[NodeView]) -> list[Finding]:
    """All that is worth telling, the server first."""
    return [
        *_clock(facts.clock_ahead_ms),
        *(found for name, info in facts.primaries.items() for found in _server(name, info)),
        *_files(facts.open_files),
        *_silent(nodes),
        *_outbox(nodes),
    ]


def _clock(ahead_ms: int) -> Iterator[Finding]:
    if abs(ahead_ms) > CLOCK_OFF_MS:
        way = "ahead of" if ahead_ms > 0 else "behind"
        yield Finding(
            "clock",
            f"the server's clock is {duration(abs(ahead_ms))} {way} the one here",
            "leases and delays go by the server's clock, instants that you pass by yours: let NTP set both",
        )


def _server(name: str, info: Mapping[str, str]) -> Iterator[Finding]:
    clients, most = whole_number(info, "connected_clients"), whole_number(info, "maxclients")
    if most and clients >= most * FULL_SHARE:
        yield Finding(
            "connections",
            f"{name} has {clients:,} of at most {most:,} clients",
            "raise maxclients and the server's limit of open files, or run fewer nodes",
        )
    used, limit = whole_number(info, "used_memory"), whole_number(info, "maxmemory")
    if limit and used >= limit * FULL_SHARE:
        yield Finding(
            "memory",
            f"{name} uses {size(used)} of {size(limit)}",
            "raise maxmemory, or see in `mqworker status` which queue grows: when full it refuses",
        )
    if info.get("aof_enabled") == "0":
        yield Finding(
            "persistence",
            f"{name} has no append-only file: a crash of the server loses messages",
            "set appendonly yes and appendfsync everysec",
        )
    if info.get("aof_last_write_status", "ok") != "ok" or info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield Finding(
            "persistence", f"{name} cannot write to its disk", "see its log; often the disk is full"
        )


def _files(most: int) -> Iterator[Finding]:
    if most != resource.RLIM_INFINITY and most < FEWEST_FILES:
        yield Finding(
            "open files",
            f"a process may open {most:,} files here",
            f"a node wants {FEWEST_FILES:,}: ulimit -n, or LimitNOFILE= of its systemd unit",
        )


def _silent(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    for node in nodes:
        if node.age_ms > SILENT_MS:
            yield Finding(
                "node",
                f"{node.name} was heard {duration(node.age_ms)} ago: its supervisor was killed or stopped",
                f"start it again, or end pid {node.pid or '?'} there; what it held is delivered by others",
            )


def _outbox(nodes: Sequence[NodeView]) -> Iterator[Finding]:
    for node in nodes:
        for child in node.children:
            outbox = outbox_in(child.facts)
            for problem in () if outbox is None else outbox.problems:
                yield Finding(
                    "outbox",
                    f"{child.name} of {node.name} {problem}",
                    "see whether the database of outbox_url answers there, and `mqworker outbox show`",
                )
