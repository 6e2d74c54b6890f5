"""A node that runs a `shop:app` of the test's own, and an app of that name to send to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from mqworker import App
from mqworker.settings import Settings
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer


def shop_node(server: RealServer, code: str, settings: Mapping[str, str]) -> RealNode:
    """Not started yet; use it in a `with` block."""
    node = RealNode(server.url, "shop:app", settings=dict(settings))
    (node.directory / "shop.py").write_text(code)
    return node


@contextmanager
def shop_app(server: RealServer) -> Iterator[App]:
    """The producer."""
    app = App("shop", settings=Settings(redis_url=server.url))
    yield app
    app.close()
