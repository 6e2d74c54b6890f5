"""The envelope: the body of a task's message, `[args, kwargs]` or `[args, kwargs, options]`.

The task's name and the id stand in the record around it (record.py), so a call without arguments is three
bytes. Options are a map that is there only when it says something.

This is version 1, which begins with the array of arguments. A later version begins with its number instead,
so that a worker that is too old for it says so.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from mqworker.errors import InvalidArgument, InvalidMessage
from mqworker.model.names import message_id, shown, tag_names, whole_number
from mqworker.model.value_codec import PACKED_NONE, NotAccepted, Value, pack, unpack
from mqworker.model.value_problem import problem_with

MOST_HEADERS = 64
LONGEST_HEADER = 4_096
LONGEST_TIMEOUT_MS = 366 * 24 * 3600 * 1000

_HEADERS, _TIMEOUT_MS, _WORKFLOW, _TAGS = "headers", "timeout_ms", "workflow", "tags"
_NO_HEADERS: Mapping[str, str] = {}
_NO_ARGUMENTS = b"\x92\x90\x80"
_LENGTHS = (2, 3)
TWO_PARTS, _THREE_PARTS = b"\x92", b"\x93"
"""What a body begins with that holds no options, such as headers; and one that does."""
_VERSION = 1


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a call carries along besides its arguments."""

    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_ms: int | None = None
    workflow: str | None = None
    """The workflow of which the call is a member."""
    tags: tuple[str, ...] = ()
    """Words to find it by."""

    def __post_init__(self) -> None:
        if len(self.headers) > MOST_HEADERS:
            raise InvalidArgument(f"headers: got {len(self.headers)}; accepted are up to {MOST_HEADERS}")
        for name, text in self.headers.items():
            _check_header(name, text)
        if self.timeout_ms is not None:
            whole_number("timeout_ms", self.timeout_ms, least=1, most=LONGEST_TIMEOUT_MS)
        if self.workflow is not None:
            message_id(self.workflow)
        if self.tags:
            object.__setattr__(self, "tags", tag_names(self.tags))  # frozen: checked and each once


@dataclass(slots=True)  # not frozen: one is made for each delivery
class Envelope:
    """A decoded body. Treat it as read-only."""

    args: list[Any]
    kwargs: dict[str, Any]
    headers: Mapping[str, str]
    timeout_ms: int | None = None
    workflow: str | None = None
    tags: tuple[str, ...] = ()

    def count_of_places(self) -> int:
        """How many of the first arguments are None: at the most so many places wait for an input."""
        return next((at for at, each in enumerate(self.args) if each is not None), len(self.args))


def encode_call(
    args: Sequence[Value], kwargs: Mapping[str, Value], options: CallOptions | None = None
) -> bytes:
    """The body of a call. Raises `NotAccepted`: `explain` turns it into words for the caller."""
    if options is None:
        return pack([[*args], kwargs])
    return pack([[*args], kwargs, _option_map(options)])


def encode_plain_calls(names: Sequence[str], columns: Sequence[Iterable[Value]]) -> list[bytes]:
    """The bodies of calls by name, whose arguments come column by column; the bytes of `encode_call`.

    For plain values only (None, bool, int of 64 bits, finite float, str, bytes), unchecked: what
    lies between the values is made once, and that is a third of the work of packing a map for each call.
    """
    packer = msgpack.Packer()
    pack_value = packer.pack
    header = packer.pack_map_header(len(names))
    between = [pack_value(name).replace(b"%", b"%%") + b"%b" for name in names]
    template = b"\x92\x90" + header.replace(b"%", b"%%") + b"".join(between)  # no arguments by position
    return [
        template % values for values in zip(*[map(pack_value, column) for column in columns], strict=True)
    ]


def with_first_argument(body: bytes, packed: bytes) -> bytes:
    """The body with a packed value in place of its first argument, which is None; nothing else is decoded."""
    # The call is an array of 2 or 3, one byte; then the array of arguments, whose length has three forms.
    at = {0xDC: 4, 0xDD: 6}.get(body[1], 2)
    if body[at : at + 1] != PACKED_NONE:
        raise InvalidMessage("a call that takes an input has no place for it")
    return body[:at] + packed + body[at + 1 :]


def with_arguments(body: bytes, count: int, packed: bytes) -> bytes:
    """The same for the first arguments, which are None: their values come as one packed array."""
    at = {0xDC: 4, 0xDD: 6}.get(body[1], 2)
    if body[at : at + count] != PACKED_NONE * count or packed[: len(array_header(count))] != array_header(
        count
    ):
        raise InvalidMessage("a call that takes several inputs has no place for them")
    return body[:at] + packed[len(array_header(count)) :] + body[at + count :]


def with_headers(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body with more headers; those that it has win, and too many are not added."""
    if body[:1] == TWO_PARTS:  # nearly all of them: what is there stays as it is
        return _THREE_PARTS + body[1:] + pack({_HEADERS: dict(headers)})
    call = unpack(body)
    options = call[2]
    merged = {**headers, **options.get(_HEADERS, {})}
    if len(merged) > MOST_HEADERS:
        return body
    return pack([call[0], call[1], {**options, _HEADERS: merged}])


def array_header(count: int) -> bytes:
    """The bytes before the items of an array."""
    header: bytes = msgpack.Packer().pack_array_header(count)
    return header


def explain(refused: NotAccepted, task: str, values_by_name: Mapping[str, Value]) -> InvalidArgument:
    """The error for a call that cannot be encoded: names the argument, where one is to blame."""
    for name, value in values_by_name.items():
        problem = problem_with(f"argument {name!r} of {task}", value)
        if problem is not None:
            return InvalidArgument(problem)
    return InvalidArgument(f"the arguments of {task} together cannot be sent: {refused}")


def decode_call(body: bytes) -> Envelope:
    """The call in a body. Raises `InvalidMessage`; limits are checked before anything is built."""
    if body == _NO_ARGUMENTS:
        return Envelope([], {}, _NO_HEADERS)
    call = unpack(body)
    # By hand instead of `match`: five times quicker, and this runs for each delivery.
    if type(call) is list and call and type(call[0]) is int:
        raise InvalidMessage(f"a call of version {call[0]}; this worker understands version {_VERSION}")
    if type(call) is not list or len(call) not in _LENGTHS:
        raise InvalidMessage(f"{len(body)} bytes are not a call: [args, kwargs] or with options is expected")
    args, kwargs = call[0], call[1]
    if type(args) is not list or type(kwargs) is not dict:
        raise InvalidMessage("a call holds no list of arguments or no map of keyword arguments")
    if kwargs and not all(type(name) is str for name in kwargs):
        raise InvalidMessage("the name of a keyword argument is not a text")
    if len(call) == _LENGTHS[0]:
        return Envelope(args, kwargs, _NO_HEADERS)
    return _with_options(args, kwargs, call[2])


def _check_header(name: object, text: object) -> None:
    if isinstance(name, str) and isinstance(text, str) and len(name) + len(text) <= LONGEST_HEADER:
        return
    raise InvalidArgument(
        f"headers: got {shown(name)}: {shown(text)}; accepted are pairs of texts, together up to "
        f"{LONGEST_HEADER:,} characters"
    )


def _option_map(options: CallOptions) -> dict[str, object]:
    chosen: dict[str, object] = {}
    if options.headers:
        chosen[_HEADERS] = dict(options.headers)
    if options.timeout_ms is not None:
        chosen[_TIMEOUT_MS] = options.timeout_ms
    if options.workflow is not None:
        chosen[_WORKFLOW] = options.workflow
    if options.tags:
        chosen[_TAGS] = list(options.tags)
    return chosen


def _with_options(args: list[Any], kwargs: dict[str, Any], options: object) -> Envelope:
    if not isinstance(options, dict) or not options:
        raise InvalidMessage("the options of a call are not a map, or an empty one")
    unknown = options.keys() - {_HEADERS, _TIMEOUT_MS, _WORKFLOW, _TAGS}
    if unknown:
        raise InvalidMessage(f"unknown options of a call: {shown(sorted(map(str, unknown)))}")
    if type(options.get(_TAGS, [])) is not list:
        raise InvalidMessage("the tags of a call are not a list")
    try:
        checked = CallOptions(
            options.get(_HEADERS, {}),
            options.get(_TIMEOUT_MS),
            options.get(_WORKFLOW),
            options.get(_TAGS, ()),
        )
    except (InvalidArgument, TypeError, AttributeError) as error:
        raise InvalidMessage(f"the options of a call do not fit: {error}") from error
    return Envelope(args, kwargs, checked.headers, checked.timeout_ms, checked.workflow, checked.tags)
