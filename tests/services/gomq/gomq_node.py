"""A foreign client: the generated contract on a plain channel, and a real node for it to call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from mqworker_services.gateways.gomq.generated import gomq_pb2 as contract
from tests.support.deadline import wait_until
from tests.support.real_node import RealNode
from tests.support.real_server import free_port

DEADLINE_S = 60.0
CALL_DEADLINE_S = 30.0
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 100))


class GomqNode(RealNode):
    """A node with a GOMQ gateway and no workers."""

    def __init__(self, redis_url: str, **settings: object) -> None:
        self.target = f"127.0.0.1:{free_port()}"
        values = {"gateways": f"gomq={self.target}", "log_format": "json", **settings}
        variables = {f"MQWORKER_{name.upper()}": str(value) for name, value in values.items()}
        super().__init__(redis_url, settings=variables)


class Foreign:
    """A client of the contract alone, on a connection of its own."""

    def __init__(self, target: str, metadata: Sequence[tuple[str, str]] = ()) -> None:
        self.channel = grpc.insecure_channel(target, options=OWN_CONNECTION)
        self._metadata = tuple(metadata)

    def publish(self, key: str, payload: bytes) -> int:
        return self._result("Publish", contract.PublishRecord(key=key, payload=payload))

    def publish_many(self, key: str, payloads: Sequence[bytes]) -> None:
        """Publish all of them, a hundred under way at any time; their order is not kept."""
        call = self._method("Publish")
        for start in range(0, len(payloads), 100):
            under_way = [
                call.future(
                    contract.PublishRecord(key=key, payload=payload).SerializeToString(), CALL_DEADLINE_S
                )
                for payload in payloads[start : start + 100]
            ]
            assert all(contract.Result.FromString(each.result()).code == 0 for each in under_way)

    def subscribe(self, key: str, consumer: str) -> int:
        return self._result("Subscribe", contract.Subscription(key=key, consumerID=consumer))

    def unsubscribe(self, key: str, consumer: str) -> int:
        return self._result("Unsubscribe", contract.Subscription(key=key, consumerID=consumer))

    def observe(self, consumer: str) -> list[contract.Record]:
        response = self.send("Observe", contract.Identification(consumerID=consumer).SerializeToString())
        return list(contract.RecordSet.FromString(response).records)

    def observe_until(self, consumer: str, count: int) -> list[contract.Record]:
        """Observe until so many records came."""
        found: list[contract.Record] = []

        def is_enough() -> bool:
            found.extend(self.observe(consumer))
            return len(found) >= count

        wait_until(is_enough, f"{count} records came", DEADLINE_S)
        return found

    def send(self, method: str, request: bytes) -> bytes:
        """Bytes out, bytes in."""
        return self._method(method)(
            request, timeout=CALL_DEADLINE_S, metadata=self._metadata, wait_for_ready=True
        )

    def close(self) -> None:
        self.channel.close()

    def _method(self, name: str) -> grpc.UnaryUnaryMultiCallable[bytes, bytes]:
        return self.channel.unary_unary(f"/routeguide.RouteGuide/{name}")

    def _result(self, method: str, request: Any) -> int:  # noqa: ANN401 - any of the generated requests
        return int(contract.Result.FromString(self.send(method, request.SerializeToString())).code)
