"""Stored schedules: what a broker, which imports no application, must know to fire them.

One field of a hash each: `<revision> <owner> <since ms> <times> <queue> <JSON>`. The words in front are for
the scripts, which write the first three; `times` is equal where the ticks are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.instant import LATEST_MS
from mqworker.model.names import LONGEST_HORIZON_MS, message_id, parse_whole, shown, whole_number
from mqworker.model.schedule import CatchUp, Cron, Every, Timing
from mqworker.model.strict_json import JsonLimits, read_json
from mqworker.store.exchange import UNREADABLE

VERSION = 2
DATA = "data"
"""The owner of what was made at run time; `code:<app>` owns what the code of an app says."""

# Arguments as large as a body may be.
_LIMITS = JsonLimits(most_bytes=64 * 1024 * 1024, deepest=16, most_nodes=1_000)
_WORDS = 5


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """One schedule, ready to be fired."""

    name: str
    """Unique in a namespace, and part of the ids of its messages; in code `app/schedule`."""
    timing: Timing
    catch_up: CatchUp
    jitter_ms: int
    call: CallTemplate
    since_ms: int = 0
    """When it was first stored like this: ticks before that were never meant."""
    owner: str = DATA
    revision: bytes = b""
    """Of what was read; goes up with each change."""

    @property
    def app(self) -> str | None:
        """The app whose code owns it; None where it is data."""
        return self.owner.removeprefix("code:") if self.owner.startswith("code:") else None


def owner_of(app: str) -> str:
    """The owner of what the code of an app says."""
    return f"code:{app}"


def stored_words(spec: ScheduleSpec) -> tuple[str, str, str, str]:
    """Name, times, queue and JSON, as store_schedules.lua takes them."""
    digest = hashlib.blake2b(f"{spec.timing!r} {spec.catch_up}".encode(), digest_size=8).hexdigest()
    return spec.name, digest, spec.call.queue, json.dumps(_fields(spec))


def decode_stored(name: bytes, text: bytes) -> ScheduleSpec:
    """The schedule; raises `InvalidMessage` when that cannot be read."""
    words = text.split(b" ", _WORDS)
    if len(words) != _WORDS + 1:
        raise InvalidMessage(f"a schedule cannot be read: {shown(text)}")
    revision, owner, since, _, _, document = words
    fields = read_json(document, _LIMITS)
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        raise InvalidMessage(f"a schedule of another version; this one reads {VERSION}: {shown(document)}")
    since_ms = parse_whole(since, most=LATEST_MS)
    if since_ms is None:
        raise InvalidMessage(f"a schedule cannot be read: since {shown(since)}")
    try:
        return _spec(name.decode(), fields, since_ms, owner.decode(), revision)
    except (InvalidArgument, InvalidMessage, *UNREADABLE) as error:
        raise InvalidMessage(f"a schedule cannot be read: {error!r}") from error


def _fields(spec: ScheduleSpec) -> dict[str, Any]:
    timing = (
        {"cron": spec.timing.line, "timezone": spec.timing.timezone}
        if isinstance(spec.timing, Cron)
        else {"every_ms": spec.timing.interval_ms}
    )
    return {
        "version": VERSION,
        **timing,
        "catch_up": spec.catch_up,
        "jitter_ms": spec.jitter_ms,
        "call": spec.call.as_fields(),
    }


# Any: JSON; what is taken out of it is checked here and in the values it goes into.
def _spec(name: str, fields: Mapping[str, Any], since_ms: int, owner: str, revision: bytes) -> ScheduleSpec:
    catch_up: CatchUp = fields["catch_up"]
    if catch_up not in get_args(CatchUp):
        raise InvalidMessage(f"catch_up is {catch_up!r}")
    timing = Cron(fields["cron"], fields["timezone"]) if "cron" in fields else Every(fields["every_ms"])
    message_id(f"{name}@{0:014}")  # what the messages of its ticks are called
    jitter_ms = whole_number("jitter_ms", fields["jitter_ms"], least=0, most=LONGEST_HORIZON_MS)
    return ScheduleSpec(
        name, timing, catch_up, jitter_ms, template_of(fields["call"]), since_ms, owner, revision
    )
