"""Types beyond our own codec: as what each is sent, and how a receiver that names it gets it back.

Pydantic models, msgspec structs, paths, timedeltas, scalars of numpy, and whatever an application registers
with `app.codec`. None of these libraries is imported here: who has such a value has imported its library.
"""

import pathlib
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from mqworker.errors import ConfigurationError, InvalidMessage, MqworkerError
from mqworker.model.names import shown

# Any: values of the user's, and libraries that are not imported here.
Lower = Callable[[Any], Any]
Rebuild = Callable[[Any], Any]

NOT_LOWERED = object()
_NUMBERS = (bool, int, float)
_DURATION = re.compile(
    r"(-?)P(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9}(?:\.[0-9]{1,6})?)S)?)?"
)


@dataclass(frozen=True, slots=True)
class Codec:
    """How values of one type travel: `encode` gives a plain value, `decode` makes the type of it again."""

    encode: Lower
    decode: Rebuild


_CODEC_BY_TYPE: dict[type, Codec] = {}


def register_codec(kind: type, encode: Lower, decode: Rebuild) -> None:
    """Let values of this very class be sent. A second, other codec for it is refused."""
    known = _CODEC_BY_TYPE.setdefault(kind, Codec(encode, decode))
    if known != Codec(encode, decode):
        raise ConfigurationError(
            f"codec: {kind.__qualname__} has one already; accepted is one codec for a class in a process"
        )


def lowered(value: Any) -> Any:  # noqa: ANN401 - see above
    """The value as something plainer; `NOT_LOWERED` where it is of none of these types.

    May raise whatever its library raises.
    """
    kind = type(value)
    codec = _CODEC_BY_TYPE.get(kind)
    if codec is not None:
        return codec.encode(value)
    if hasattr(kind, "model_dump") and hasattr(kind, "__pydantic_serializer__"):
        # By the names of its fields, without computed ones: so that every model takes it back.
        return value.model_dump(mode="python", round_trip=True, by_alias=False, warnings="error")
    if hasattr(kind, "__struct_fields__"):
        return sys.modules["msgspec"].to_builtins(value, enc_hook=_lowered_inside)
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if isinstance(value, timedelta):
        return _duration(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0:
        number = value.item()
        return number if type(number) in _NUMBERS else NOT_LOWERED
    # Addresses and the like inside of a model; its secrets stay refused: they would arrive as asterisks.
    if kind.__module__.partition(".")[0] == "pydantic" and "Secret" not in kind.__qualname__:
        return str(value)
    return NOT_LOWERED


def rebuild_of(kind: Any) -> Rebuild | None:  # noqa: ANN401 - see above
    """How received values become this class; None where it is none of these."""
    codec = _CODEC_BY_TYPE.get(kind)
    if codec is not None:
        return _guarded(kind, codec.decode)
    if hasattr(kind, "model_validate") and hasattr(kind, "__pydantic_validator__"):
        return _guarded(kind, lambda value: kind.model_validate(value, by_alias=True, by_name=True))
    if hasattr(kind, "__struct_fields__"):
        convert = sys.modules["msgspec"].convert
        return _guarded(kind, lambda value: convert(value, kind, dec_hook=_rebuilt_inside))
    if isinstance(kind, type) and issubclass(kind, pathlib.PurePath):
        return _guarded(kind, kind)
    if kind is timedelta:
        return _guarded(kind, _timedelta)
    return None


def _lowered_inside(value: Any) -> Any:  # noqa: ANN401 - see above
    plain = lowered(value)
    if plain is NOT_LOWERED:
        raise NotImplementedError(f"a {type(value).__qualname__}")
    return plain


def _rebuilt_inside(kind: type, value: Any) -> Any:  # noqa: ANN401 - see above
    rebuild = rebuild_of(kind)
    if rebuild is None:
        raise NotImplementedError(f"a {kind.__qualname__}")
    return rebuild(value)


def _guarded(kind: type, make: Rebuild) -> Rebuild:
    def rebuild(value: Any) -> Any:  # noqa: ANN401 - see above
        try:
            return make(value)
        except MqworkerError:  # of a part inside, or a signal's
            raise
        except Exception as error:  # whatever a library or an application raises: the value does not fit
            raise InvalidMessage(
                f"{_told(value, error)} is no {kind.__qualname__}: {_reason(error)}"
            ) from error

    return rebuild


def _told(value: Any, error: Exception) -> str:  # noqa: ANN401 - see above
    # A library that says where the trouble is needs no value beside it, in which there may be secrets.
    return f"a {type(value).__qualname__}" if hasattr(error, "errors") else shown(value)


def _reason(error: Exception) -> str:
    """What is wrong, without the values: they may be secret, and this is stored."""
    find = getattr(error, "errors", None)
    if find is None:
        return f"{type(error).__name__}: {error}"
    problems = find(include_input=False, include_url=False, include_context=False)
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'all of it'}: {each['msg']}" for each in problems[:5]
    )


def _duration(value: timedelta) -> str:
    """As ISO 8601 writes it, which Pydantic and msgspec read, too: exact, of any length."""
    size = abs(value)
    return f"{'-' * (value < timedelta(0))}P{size.days}DT{size.seconds}.{size.microseconds:06d}S"


def _timedelta(value: Any) -> timedelta:  # noqa: ANN401 - see above
    if isinstance(value, int | float):
        return timedelta(seconds=value)  # as others write it
    found = _DURATION.fullmatch(value)
    if found is None:
        raise ValueError("it is no duration such as P1DT2.5S, and no number of seconds")
    sign, *parts = found.groups()
    days, hours, minutes, seconds = (Decimal(part or 0) for part in parts)
    microseconds = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000
    return timedelta(microseconds=int(microseconds)) * (-1 if sign else 1)
