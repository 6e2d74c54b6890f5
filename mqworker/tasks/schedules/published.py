"""Published schedules: what a broker, which imports no application, must know to fire them. JSON in Redis."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.instant import LATEST_MS
from mqworker.model.names import LONGEST_HORIZON_MS, message_id, shown, whole_number
from mqworker.model.schedule import CatchUp, Cron, Every, Timing
from mqworker.model.strict_json import JsonLimits, read_json

VERSION = 1

# An app of thousands of schedules, with arguments as large as a body may be.
_LIMITS = JsonLimits(most_bytes=64 * 1024 * 1024, deepest=16, most_nodes=1_000_000)
_UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """One schedule, ready to be fired."""

    name: str
    """`app/schedule`: unique among all apps of a namespace, and part of the ids of its messages."""
    timing: Timing
    catch_up: CatchUp
    jitter_ms: int
    call: CallTemplate
    since_ms: int = 0
    """When it was first published like this: ticks before that were never meant."""


def encode_published(specs: Sequence[ScheduleSpec]) -> str:
    """All schedules of an app, as one value: publishing replaces what was there."""
    return json.dumps({"version": VERSION, "schedules": [_fields(spec) for spec in specs]})


def decode_published(
    text: bytes, on_bad: Callable[[InvalidMessage], object] = lambda _problem: None
) -> list[ScheduleSpec]:
    """The schedules of an app; `on_bad` hears of one that cannot be read, and the others are there.

    Raises `InvalidMessage` when the whole is not a list of schedules.
    """
    document = read_json(text, _LIMITS)
    if not isinstance(document, dict) or not isinstance(document.get("schedules"), list):
        raise InvalidMessage(f"published schedules cannot be read: {shown(text)}")
    if document.get("version") != VERSION:
        raise InvalidMessage(
            f"schedules of version {shown(document.get('version'))}; this one reads {VERSION}"
        )
    specs: list[ScheduleSpec] = []
    for fields in document["schedules"]:
        try:
            specs.append(_spec(fields))
        except (InvalidArgument, InvalidMessage, *_UNREADABLE) as error:
            on_bad(InvalidMessage(f"a schedule cannot be read: {error!r}"))
    return specs


def is_same(one: ScheduleSpec, other: ScheduleSpec) -> bool:
    """Whether they come at the same times: then one goes on from where the other was."""
    return (one.name, one.timing, one.catch_up) == (other.name, other.timing, other.catch_up)


def _fields(spec: ScheduleSpec) -> dict[str, Any]:
    timing = (
        {"cron": spec.timing.line, "timezone": spec.timing.timezone}
        if isinstance(spec.timing, Cron)
        else {"every_ms": spec.timing.interval_ms}
    )
    return {
        "name": spec.name,
        **timing,
        "catch_up": spec.catch_up,
        "jitter_ms": spec.jitter_ms,
        "since_ms": spec.since_ms,
        "call": spec.call.as_fields(),
    }


# Any: JSON; what is taken out of it is checked here and in the values it goes into.
def _spec(fields: Mapping[str, Any]) -> ScheduleSpec:
    catch_up: CatchUp = fields["catch_up"]
    if catch_up not in get_args(CatchUp):
        raise InvalidMessage(f"catch_up is {catch_up!r}")
    timing = Cron(fields["cron"], fields["timezone"]) if "cron" in fields else Every(fields["every_ms"])
    name = fields["name"]
    message_id(f"{name}@{0:013}")  # what the messages of its ticks are called
    return ScheduleSpec(
        name,
        timing,
        catch_up,
        whole_number("jitter_ms", fields["jitter_ms"], least=0, most=LONGEST_HORIZON_MS),
        template_of(fields["call"]),
        whole_number("since_ms", fields["since_ms"], least=0, most=LATEST_MS),
    )
