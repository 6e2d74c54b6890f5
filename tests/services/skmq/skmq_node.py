"""A real node with an SKMQ gateway and no workers."""

from __future__ import annotations

from tests.support.real_node import RealNode
from tests.support.real_server import free_port


class SkmqNode(RealNode):
    """Its options are those of the gateway: retry_times=2 and so on."""

    def __init__(self, redis_url: str, *, namespace: str = "mqw", token: str = "", **options: object) -> None:
        self.address = ("127.0.0.1", free_port())
        values = {
            "gateways": f"skmq=127.0.0.1:{self.address[1]}",
            "gateway_options": ",".join(f"skmq.{name}={value}" for name, value in options.items()),
            "gateway_token": token,
            "namespace": namespace,
            "log_format": "json",
        }
        settings = {f"MQWORKER_{name.upper()}": value for name, value in values.items() if value}
        super().__init__(redis_url, settings=settings)
