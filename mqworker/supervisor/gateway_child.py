"""The process of a gateway: the one place that knows which service is behind which name.

Services are imported here, in the child: the supervisor is forked again and again, and must not hold a thread
of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from mqworker.actors.child_start import ChildStart
from mqworker.actors.gateway.settings import options_of
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError

if TYPE_CHECKING:
    from mqworker.actors.gateway.loop import Gateway


def main(control: Mailbox, start: ChildStart) -> int:
    """Run the gateway that this child is named after."""
    from mqworker.actors.gateway.loop import run_gateway  # noqa: PLC0415 - asyncio is of use in the child only

    name = start.name.partition(":")[2]
    return run_gateway(load_gateway(name), options_of(start.settings, name), control, start)


def load_gateway(name: str) -> Gateway:
    """The service behind a name."""
    loader = _LOADER_BY_NAME.get(name)
    if loader is None:
        raise ConfigurationError(f"gateway is {name}; accepted are {', '.join(_LOADER_BY_NAME)}")
    try:
        return loader()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _PACKAGES_OF_EXTRA_GRPC:
            raise  # not a missing extra: the traceback tells what is wrong
        raise ConfigurationError(
            f"gateway {name}: the package {error.name} is not installed; pip install 'mqworker[grpc]'"
        ) from error


def _redismq() -> Gateway:
    from mqworker_services.gateways.redismq.gateway import RedisMqGateway  # noqa: PLC0415 - see the module's first lines

    return RedisMqGateway()


def _gomq() -> Gateway:
    from mqworker_services.gateways.gomq.gateway import GomqGateway  # noqa: PLC0415 - as above; this one needs the extra "grpc"

    return GomqGateway()


def _skmq() -> Gateway:
    from mqworker_services.gateways.skmq.gateway import SkmqGateway  # noqa: PLC0415 - as above

    return SkmqGateway()


_PACKAGES_OF_EXTRA_GRPC = {"grpc", "grpc_health", "google"}
_LOADER_BY_NAME: Mapping[str, Callable[[], Gateway]] = {"gomq": _gomq, "redismq": _redismq, "skmq": _skmq}
