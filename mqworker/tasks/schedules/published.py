"""Published schedules: what a broker, which imports no application, must know to fire them. JSON in Redis."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.call_template import CallTemplate, template_of
from mqworker.model.schedule import CatchUp, Cron, Every, Timing

VERSION = 1


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


def decode_published(text: bytes) -> list[ScheduleSpec]:
    """The schedules of an app; raises `InvalidMessage` for anything else."""
    try:
        document = json.loads(text)
        if document["version"] != VERSION:
            raise InvalidMessage(f"schedules of version {document['version']!r}; this one reads {VERSION}")
        return [_spec(fields) for fields in document["schedules"]]
    except (InvalidArgument, ValueError, KeyError, TypeError) as error:
        raise InvalidMessage(f"published schedules cannot be read: {error!r}") from error


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
    return ScheduleSpec(
        str(fields["name"]),
        timing,
        catch_up,
        int(fields["jitter_ms"]),
        template_of(fields["call"]),
        int(fields["since_ms"]),
    )
