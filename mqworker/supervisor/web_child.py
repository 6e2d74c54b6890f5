"""The process of a node's console: supervised like a gateway, with no pipe to the other children.

It is imported here, in the child, as gateways are.
"""

from __future__ import annotations

from importlib.util import find_spec

from mqworker.actors.child_start import ChildStart
from mqworker.actors.mailbox import Mailbox
from mqworker.errors import ConfigurationError
from mqworker.model.gateway_options import LOOPBACK, GatewayOptions, TcpPlace

WEB_CHILD = "gateway:web"
_NEEDED = ("starlette", "uvicorn", "jinja2", "multipart")


def main(control: Mailbox, start: ChildStart) -> int:
    """Serve the console until the node stops."""
    from mqworker.actors.gateway.loop import run_gateway  # noqa: PLC0415 - asyncio is of use in the child only
    from mqworker_services.web.node_console import NodeConsole  # noqa: PLC0415 - a service, with libraries of its own

    # It listens where the setting `web` says, and checks who may come in by itself.
    unused = GatewayOptions("web", TcpPlace(LOOPBACK, 0))
    return run_gateway(NodeConsole(start.settings), unused, control, start, peers=())


def check_installed() -> None:
    """Raise ConfigurationError before anything starts where the extra is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigurationError(f"the console needs {', '.join(missing)}: pip install 'mqworker[web]'")
