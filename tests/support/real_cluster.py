"""Three real servers that form a cluster on loopback, and the moving of a slot between them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from redis.crc import key_slot

from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port

SLOTS = 16384


class RealCluster:
    """Three primaries, each with a third of the slots."""

    def __init__(self) -> None:
        self._bus_ports = [free_port() for _ in range(3)]
        self.servers = [
            RealServer(
                *("--cluster-enabled", "yes", "--cluster-port", str(bus_port)),
                *("--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no"),
            )
            for bus_port in self._bus_ports
        ]

    @property
    def url(self) -> str:
        """An address that names one node only; the others have to be found."""
        return f"redis+cluster://127.0.0.1:{self.servers[0].port}"

    def owner(self, key: str) -> RealServer:
        """The server that serves the slot of `key` when no slot was moved."""
        return self.servers[key_slot(key.encode()) * 3 // SLOTS]

    def begin_move(self, key: str, source: RealServer, target: RealServer) -> None:
        """From here on the source answers ASK for keys of the slot that it does not hold."""
        slot = key_slot(key.encode())
        with source.client() as sending, target.client() as receiving:
            receiving.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", _node_id(source))
            sending.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", _node_id(target))

    def move_key(self, key: str, source: RealServer, target: RealServer) -> None:
        """Take one key over to the target."""
        with source.client() as client:
            client.execute_command("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)

    def end_move(self, key: str, source: RealServer, target: RealServer) -> None:
        """From here on the source answers MOVED."""
        slot = key_slot(key.encode())
        with source.client() as sending, target.client() as receiving:
            for client in (receiving, sending):
                client.execute_command("CLUSTER", "SETSLOT", slot, "NODE", _node_id(target))

    def close(self) -> None:
        """Kill all three."""
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        try:
            self._form()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _form(self) -> None:
        for server in self.servers:
            server.start()
        bounds = [(index * SLOTS + 2) // 3 for index in range(4)]
        for index, server in enumerate(self.servers):
            with server.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[index], bounds[index + 1] - 1)
        with self.servers[0].client() as first:
            for server, bus_port in zip(self.servers[1:], self._bus_ports[1:], strict=True):
                first.execute_command("CLUSTER", "MEET", "127.0.0.1", server.port, bus_port)
        wait_until(lambda: all(map(_sees_all, self.servers)), "the nodes of the cluster to know one another")


def _node_id(server: RealServer) -> bytes:
    with server.client() as client:
        node_id = client.execute_command("CLUSTER", "MYID")
    assert isinstance(node_id, bytes)
    return node_id


def _sees_all(server: RealServer) -> bool:
    with server.client() as client:
        info = client.execute_command("CLUSTER", "INFO")
        slots = client.execute_command("CLUSTER", "SLOTS")
    is_complete: bool = sum(last - first + 1 for first, last, *_ in slots) == SLOTS
    return b"cluster_state:ok" in info and is_complete
