"""What anybody may have written into the keys of a work queue: one parser per kind, which skips the bad."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mqworker.model.names import ConsumerName, parse_consumer_name, parse_whole
from mqworker.model.quarantine import Quarantine


def readable_consumers(key: str, names: Iterable[object], quarantine: Quarantine) -> Iterator[ConsumerName]:
    """Consumers as they are registered under `key`; a name that none can have belongs to nobody."""
    for raw in names:
        name = parse_consumer_name(raw)
        if name is not None:
            yield name
        elif isinstance(raw, bytes):
            quarantine.note("consumer", key, "no name of a consumer", raw, remove_by="ZREM")


def readable_fences(key: str, fields: Iterable[bytes], quarantine: Quarantine) -> Iterator[int]:
    """Fences of what a consumer holds under `key`."""
    for raw in fields:
        fence = parse_whole(raw)
        if fence is not None:
            yield fence
        else:
            quarantine.note("fence", key, "no fence", raw, remove_by="HDEL")


def counter(text: str) -> int:
    """A counter of a queue; 0 for what is none."""
    return parse_whole(text.encode()) or 0
