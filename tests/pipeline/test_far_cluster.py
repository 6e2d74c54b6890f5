"""A cluster whose workers are elsewhere: network and mounts of their own, nothing shared but a bucket.

The driver, the master, one worker, the server and the bucket are on the near side; the second worker on the
far side of a line. What the driver says of itself must be an address that the far side can reach.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from mqworker_services.pipeline.launcher import has_java
from tests.pipeline.event_factory import append_events
from tests.pipeline.quick_java import QUICK_ENVIRONMENT
from tests.pipeline.test_cluster import DEADLINE_S, ROOT, daemon
from tests.support.bucket_server import BUCKET, CREDENTIALS, BucketServer
from tests.support.network_namespaces import FAR_ADDRESS, NEAR_ADDRESS, NetworkNamespaces, why_not
from tests.support.real_server import RealServer, free_port

EVENTS = 110_000
"""More than one task takes: each worker gets some."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master with two workers, a server and a bucket, in namespaces of their own."""

    network: NetworkNamespaces
    server: RealServer
    bucket: BucketServer
    master: str
    folder: Path

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of the pipeline, on the near side."""
        line = [
            *self.network.within(self.network.near),
            sys.executable,
            "-m",
            "mqworker",
            "pipeline",
            command,
        ]
        line += ["--master", self.master, "--redis-url", f"redis://{NEAR_ADDRESS}:{self.server.port}"]
        line += ["--lake", f"s3://{BUCKET}/far", "--storage", f"endpoint={self.bucket.endpoint}"]
        line += ["--conf", "spark.executor.memory=512m", *arguments]
        given = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
        return subprocess.run(
            line,
            cwd=ROOT,
            env=given | QUICK_ENVIRONMENT | CREDENTIALS,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    with ExitStack() as stack:
        network = stack.enter_context(NetworkNamespaces())
        near, far = network.within(network.near), network.within(network.far)
        server = RealServer("--bind", NEAR_ADDRESS, "--protected-mode", "no", inside=near)
        stack.enter_context(server)
        bucket = stack.enter_context(BucketServer(NEAR_ADDRESS, inside=near))
        port = free_port()
        master = f"spark://{NEAR_ADDRESS}:{port}"
        stack.enter_context(
            daemon(
                folder / "master.log",
                "I have been elected leader",
                *("org.apache.spark.deploy.master.Master", "--host", NEAR_ADDRESS),
                *("--port", str(port), "--webui-port", str(free_port())),
                inside=near,
                address=NEAR_ADDRESS,
            )
        )
        for name, inside, address in (("near", near, NEAR_ADDRESS), ("far", far, FAR_ADDRESS)):
            hidden = folder / "lake"
            hidden.mkdir(exist_ok=True)
            stack.enter_context(
                daemon(
                    folder / f"worker-{name}.log",
                    "Successfully registered with master",
                    *("org.apache.spark.deploy.worker.Worker", "--host", address, "--cores", "1"),
                    *("--memory", "1g", "--webui-port", str(free_port())),
                    *("--work-dir", str(folder / f"work-{name}"), master),
                    hidden=hidden,
                    inside=inside,
                    address=address,
                    environment=environment,
                )
            )
        yield Cluster(network, server, bucket, master, folder)


def test_executors_elsewhere_archive_into_a_bucket_and_report(tmp_path: Path) -> None:
    if missing := why_not():
        pytest.skip(missing)
    if not has_java():
        pytest.skip("no Java: install Java 17, or pip install 'mqworker[java]'")
    with cluster(tmp_path, CREDENTIALS) as far, far.server.client() as client:
        made = append_events(client, "mail", EVENTS)

        archived = far.run("archive", "--once", "--trim", "--max-events", "1000000")
        left = client.xlen("mqw:{mail}:events")
        shipped = far.run("report", "--json", "--ship", str(packed(tmp_path)))
        verified = far.run("verify")

    assert archived.returncode == 0, archived.stderr
    assert f"{made:,} events archived" in archived.stdout
    assert left == 0
    for name in ("near", "far"):
        assert "Asked to launch executor" in (tmp_path / f"worker-{name}.log").read_text()
    assert shipped.returncode == 0, shipped.stderr
    assert f'"events": {made}' in shipped.stdout
    assert (tmp_path / "shipped").exists()  # the interpreter was the one that came along
    assert (verified.returncode, "none missing, none twice" in verified.stdout) == (0, True), verified.stderr


def packed(folder: Path) -> Path:
    """An environment to be shipped: a `bin/python` that says it was used, and is the one of the tests."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\ntouch {folder}/shipped\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz") as content:
        content.add(python, "bin/python")
    return archive
