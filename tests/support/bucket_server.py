"""An S3 server on loopback, in a process of its own: moto's, with one bucket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.support.deadline import wait_until
from tests.support.real_server import free_port

BUCKET = "lakes"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_DEADLINE_S = 60.0
_MAKE = """
import sys, urllib.request
request = urllib.request.Request(sys.argv[1], method="PUT", headers={"Authorization": sys.argv[2]})
urllib.request.urlopen(request, timeout=10)
"""
_SIGNED = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"


class BucketServer:
    """Keeps objects in memory until it is closed."""

    def __init__(self, address: str = "127.0.0.1", inside: Sequence[str] = ()) -> None:
        """`inside`: what commands begin with, to run in another place (support/network_namespaces.py)."""
        self.port = free_port()
        self.endpoint = f"http://{address}:{self.port}"
        self._address, self._inside = address, inside

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "moto.server", "-H", self._address, "-p", str(self.port)]
        self._process = subprocess.Popen(
            [*self._inside, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._makes_a_bucket, "the bucket server makes a bucket", _DEADLINE_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def _makes_a_bucket(self) -> bool:
        command = [*self._inside, sys.executable, "-c", _MAKE, f"{self.endpoint}/{BUCKET}", _SIGNED]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
