"""A primary, a replica and a sentinel that watches them: the smallest set that can fail over."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Any, Self

import redis

from tests.support.deadline import wait_until
from tests.support.real_server import RealServer, free_port, server_binary

SERVICE = "mqw"


class RealSentinel:
    """One sentinel is enough: its quorum is 1."""

    def __init__(self) -> None:
        self.primary = RealServer("--repl-diskless-sync-delay", "0")
        self.replica = RealServer("--replicaof", f"127.0.0.1 {self.primary.port}")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the service, with a first sentinel that is not there."""
        return f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{self.port}/{SERVICE}"

    def fail_over(self) -> None:
        """Make the replica the primary, as an operator does; returns when the sentinel names it.

        COORDINATED: otherwise a sentinel leaves the old primary writable for eight seconds more.
        """
        self._ask("FAILOVER", "COORDINATED")
        wait_until(lambda: int(self._ask("GET-MASTER-ADDR-BY-NAME")[1]) == self.replica.port, "the failover")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill all three."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.replica.close()
        self.primary.close()

    def _start(self) -> None:
        self.primary.start()
        self.replica.start()
        # A sentinel looks at a replica every ten seconds: what it sees first had better be a replica in step.
        with self.replica.client() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "replication")
        path = self.primary.directory / "sentinel.conf"
        path.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.primary.directory}\n"
            f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 1\n"
            f"sentinel down-after-milliseconds {SERVICE} 2000\nsentinel failover-timeout {SERVICE} 10000\n"
        )
        with (self.primary.directory / "sentinel.log").open("ab") as log:
            self._process = subprocess.Popen(
                [server_binary(), str(path), "--sentinel"], stdout=log, stderr=log
            )
        wait_until(self._knows_replica, "the sentinel to find the replica")

    def _ask(self, question: str, *options: str) -> list[Any]:
        with redis.Redis(port=self.port, socket_timeout=5) as client:
            reply: list[Any] = client.execute_command("SENTINEL", question, SERVICE, *options)
            return reply

    def _knows_replica(self) -> bool:
        try:
            replicas = self._ask("REPLICAS")
        except redis.ConnectionError:
            return False
        # Only a replica that has answered INFO is fit to be promoted.
        return any(replica[b"master-link-status"] == b"ok" for replica in replicas)
