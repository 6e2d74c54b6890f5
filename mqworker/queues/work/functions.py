"""The RedisMQ verbs as a library of server functions, put together from the scripts that mqworker sends.

A client that can only FCALL works on the same queues as all others. The library is loaded into the server and
stays there until it is removed.
"""

from __future__ import annotations

from mqworker.model.names import QueueName
from mqworker.queues.work.keys import WorkQueueKeys
from mqworker.store.command import Reply
from mqworker.store.link.connection import Connection
from mqworker.store.script import part_of, scripts_of

script = scripts_of(__package__)

LIBRARY = "mqworker"
_VERBS = ("push", "pop", "ack", "recover", "inspect")
_ANY_QUEUE = QueueName("%s")


def library_source(namespace: str, events_kept: int, dedup_window_ms: int) -> str:
    """The text of the library."""
    patterns = ", ".join(f"'{key}'" for key in WorkQueueKeys.of(namespace, _ANY_QUEUE).rqueue)
    parts = [
        f"#!lua name={LIBRARY}",
        f"local namespace, kept, window_ms = '{namespace}', {events_kept}, {dedup_window_ms}",
        f"local key_patterns = {{ {patterns} }}",
        part_of(__package__, "slices"),
    ]
    parts += [f"local function run_{verb}(KEYS, ARGV)\n{_body(verb)}\nend" for verb in _VERBS]
    return "\n".join([*parts, part_of(__package__, "functions")])


def install(connection: Connection, source: str) -> int:
    """Load the library into every primary, over an older one of the name; how many there are."""
    return len(connection.each_primary([("FUNCTION", "LOAD", "REPLACE", source)]))


def installed(connection: Connection) -> dict[str, list[str]]:
    """The functions that each primary has of the library; none where it is not there."""
    replies = connection.each_primary([("FUNCTION", "LIST", "LIBRARYNAME", LIBRARY)])
    return {server: _names(reply[0]) for server, reply in replies.items()}


def remove(connection: Connection) -> int:
    """Take the library out of every primary that has it; how many had."""
    if not any(installed(connection).values()):
        return 0
    return len(connection.each_primary([("FUNCTION", "DELETE", LIBRARY)]))


def _body(verb: str) -> str:
    """The script without its first line, which says to EVAL what `register_function` says here."""
    source = script(verb).source
    return source.partition("\n")[2] if source.startswith("#!") else source


def _names(libraries: Reply) -> list[str]:
    """The names out of a reply to FUNCTION LIST: a flat list of fields and values for each library."""
    names: list[str] = []
    for library in libraries if isinstance(libraries, list) else []:
        fields = library if isinstance(library, list) else []
        functions = fields[fields.index(b"functions") + 1] if b"functions" in fields else []
        rows = [row for row in functions if isinstance(row, list)] if isinstance(functions, list) else []
        names += [row[1].decode() for row in rows if isinstance(row[1], bytes)]
    return sorted(names)
