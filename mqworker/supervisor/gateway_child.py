"""The process of a gateway: the one place that knows which service is behind which name.

Services are imported here, in the child: the supervisor is forked again and again, and must not hold a thread
of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway_settings import options_of
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError

if TYPE_CHECKING:
    from mqworker.actors.gateway_loop import Gateway


def main(control: Mailbox, start: ChildStart) -> int:
    """Run the gateway that this child is named after."""
    from mqworker.actors.gateway_loop import run_gateway  # noqa: PLC0415 - asyncio is of use in the child only

    name = start.name.partition(":")[2]
    return run_gateway(load_gateway(name), options_of(start.settings, name), control, start)


def load_gateway(name: str) -> Gateway:
    """The service behind a name."""
    loader = _LOADER_BY_NAME.get(name)
    if loader is None:
        raise ConfigurationError(f"gateway {name}: there is none; accepted: {', '.join(_LOADER_BY_NAME)}")
    try:
        return loader()
    except ImportError as error:
        raise ConfigurationError(
            f"gateway {name}: a package that it needs is not there ({error}); "
            "install it with pip install 'mqworker[grpc]'"
        ) from error


def _redismq() -> Gateway:
    from services.redismq.gateway import RedisMqGateway  # noqa: PLC0415 - see the module's first lines

    return RedisMqGateway()


def _gomq() -> Gateway:
    from services.gomq.gateway import GomqGateway  # noqa: PLC0415 - as above; this one needs the extra "grpc"

    return GomqGateway()


def _skmq() -> Gateway:
    from services.skmq.gateway import SkmqGateway  # noqa: PLC0415 - as above

    return SkmqGateway()


_LOADER_BY_NAME: Mapping[str, Callable[[], Gateway]] = {"gomq": _gomq, "redismq": _redismq, "skmq": _skmq}
