"""Figures of tasks over the last minutes to a day, in Redis: written by dispatchers, read by people.

    <namespace>:{figures}:<seconds>:<number>   hash   'queue task consumer' -> figures, packed

A stretch of time is so many seconds long and has a number, by the server's clock. There are minutes, kept for
two hours, and quarters of an hour, kept for a day. Each dispatcher writes fields of its own, as a whole, so
that writing them again changes nothing; whoever reads adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgpack

from mqworker.model.figures import Figures, Plain
from mqworker.store.command import Command
from mqworker.store.script import Call, RawReply, scripts_of
from mqworker.store.store import Store

script = scripts_of(__package__)


@dataclass(frozen=True, slots=True)
class Resolution:
    """How long a stretch is, and for how long it is kept."""

    stretch_s: int
    kept_s: int

    def number(self, at_ms: int) -> int:
        """The stretch in which an instant lies."""
        return at_ms // 1000 // self.stretch_s


MINUTES = Resolution(60, 2 * 3600)
QUARTERS = Resolution(900, 25 * 3600)
RESOLUTIONS = (MINUTES, QUARTERS)

Stretch = tuple[Resolution, int]
_FIELDS = 3


def figures_key(namespace: str, stretch: Stretch) -> str:
    """hash: see above. One tag for all, so that one script may write several."""
    resolution, number = stretch
    return f"{namespace}:{{figures}}:{resolution.stretch_s}:{number}"


def write_figures(namespace: str, consumer: str, counted: Mapping[Stretch, Iterable[Plain]]) -> Call[int]:
    """Keep what a consumer counted in each of the stretches; gives the server's time, ms."""
    arguments: list[str | bytes | int] = []
    for (resolution, _), plain in counted.items():
        fields = [
            part
            for queue, task, *numbers in plain
            for part in (f"{queue} {task} {consumer}", msgpack.packb(numbers))
        ]
        arguments += [resolution.kept_s * 1000, len(fields) // 2, *fields]
    keys = tuple(figures_key(namespace, stretch) for stretch in counted)
    return Call(script("note_figures"), keys, tuple(arguments), int)


def read_figures(
    store: Store, namespace: str, resolution: Resolution, numbers: Sequence[int]
) -> list[Figures]:
    """The figures of these stretches, one after another; what somebody else wrote is passed over."""
    commands: list[Command] = [
        ("HGETALL", figures_key(namespace, (resolution, number))) for number in numbers
    ]
    replies: list[RawReply] = store.read(commands, figures_key(namespace, (resolution, 0)))
    return [_figures_in(reply) for reply in replies]


def _figures_in(fields: RawReply) -> Figures:
    figures = Figures()
    for name, packed in zip(fields[::2], fields[1::2], strict=True):
        parts = name.decode(errors="replace").split(" ")
        if len(parts) == _FIELDS:
            try:
                figures.add([[parts[0], parts[1], *msgpack.unpackb(packed)]])
            except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
                continue
    return figures
