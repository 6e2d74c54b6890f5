"""What is in deploy/ for containers: linted, and its promises tried by the means of a container, without one.

No image is built here and no cluster is there. A node runs as process 1 of a PID namespace, not as root, with
a read-only root file system: that is what the image, the Compose file and the manifests rely on.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from mqworker import App
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.monitored_node import fetch
from tests.support.node_process import ROOT
from tests.support.real_node import DEADLINE_S
from tests.support.real_server import RealServer, free_port

DEPLOY = ROOT / "deploy"
USER = 10001
APP = """
import os
import subprocess
import sys
import time
from mqworker import App

app = App("shop")

@app.task
def leave_orphans(count: int) -> int:
    # A child that starts another and ends at once: that one is nobody's, and so process 1's.
    for _ in range(count):
        subprocess.run(["sh", "-c", "sleep 0.2 & exit 0"], check=True, start_new_session=True)
    return os.getuid()

@app.task
def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"
"""


def test_hadolint_finds_nothing_wrong_with_the_dockerfile() -> None:
    done = _run(_tool("hadolint"), str(DEPLOY / "Dockerfile"))

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_compose_file_has_the_form_of_the_compose_specification() -> None:
    done = _run(
        _tool("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yml")
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["mqworker.yaml", "valkey.yaml"])
def test_the_manifests_have_the_form_that_kubernetes_accepts(name: str) -> None:
    done = _run(_tool("kubernetes-validate"), "--strict", str(DEPLOY / "kubernetes" / name))

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_grace_is_longer_than_the_drain_within_it() -> None:
    node = _manifests("mqworker.yaml")["Deployment", "mqworker"]["spec"]["template"]["spec"]
    drain = next(each["value"] for each in node["containers"][0]["env"] if each["name"] == "MQWORKER_DRAIN_S")
    service = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]["node"]
    unit = (DEPLOY / "mqworker.service").read_text()

    assert node["terminationGracePeriodSeconds"] >= float(drain) + 5
    assert (
        float(service["stop_grace_period"].rstrip("s"))
        >= float(service["environment"]["MQWORKER_DRAIN_S"]) + 5
    )
    assert _number(unit, "TimeoutStopSec") >= _number(unit, "MQWORKER_DRAIN_S") + 5


def test_the_autoscaler_asks_what_the_console_answers() -> None:
    keda, ours = _manifests("keda.yaml"), _manifests("mqworker.yaml")
    trigger = keda["ScaledObject", "mqworker"]["spec"]["triggers"][0]
    console = ours["Service", "mqworker-console"]["spec"]["ports"][0]["port"]
    env = ours["Deployment", "mqworker"]["spec"]["template"]["spec"]["containers"][0]["env"]
    token = keda["TriggerAuthentication", "mqworker-console"]["spec"]["secretTargetRef"][0]
    secret = ours["Secret", token["name"]]["stringData"]

    assert trigger["metadata"]["url"].startswith(f"http://mqworker-console:{console}/scale/")
    assert {"name": "MQWORKER_WORKERS", "value": trigger["metadata"]["targetValue"]} in env
    assert f" {secret[token['key']]}\n" in secret["web-tokens"]


def _manifests(name: str) -> dict[tuple[str, str], Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def _number(text: str, name: str) -> float:
    found = re.search(rf"\b{name}=(\d+)", text)
    assert found, name
    return float(found[1])


def _tool(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not here: pip install 'mqworker[dev]'")
    return found


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


# A container in a few lines: a PID namespace, a root file system that nobody can write to, another user.
# Where Python itself lies in root's home, which others cannot enter, it is shown without the rest of that.
CONTAINER = f"""
set -e
case "$PREFIX" in /root/*)
  mount --bind "$PREFIX" "$KEPT"
  mount -t tmpfs -o mode=0755 tmpfs /root
  mkdir -p "$PREFIX"
  mount --bind "$KEPT" "$PREFIX"
esac
mount -t tmpfs -o uid={USER},gid={USER},mode=0700 tmpfs "$RUN" && mount -o remount,bind,ro / &&
exec setpriv --reuid {USER} --regid {USER} --clear-groups --bounding-set=-all "$@"
"""


class ContainedNode:
    """A node as process 1, and its log."""

    def __init__(self, redis_url: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="mqw-pid1-"))
        self.directory.chmod(0o755)
        (self.directory / "shop.py").write_text(APP)
        run, kept = self.directory / "run", self.directory / "kept"
        run.mkdir()
        kept.mkdir()
        self.port = free_port()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MQWORKER_")},
            "RUN": str(run),
            "KEPT": str(kept),
            "PREFIX": sys.base_prefix,
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MQWORKER_DATA_DIR": str(run),
            "MQWORKER_REDIS_URL": redis_url,
            "MQWORKER_WORKERS": "1",
            "MQWORKER_HTTP": f"127.0.0.1:{self.port}",
        }
        self._log = (self.directory / "log").open("wb")
        self._unshare = subprocess.Popen(
            [
                *("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"),
                *("sh", "-c", CONTAINER, "sh", sys.executable, "-m", "mqworker", "run", "shop:app"),
            ],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    @property
    def first(self) -> psutil.Process:
        """Process 1 of the namespace, as it is seen from outside."""
        return psutil.Process(self._unshare.pid).children()[0]

    def is_ready(self) -> bool:
        assert self._unshare.poll() is None, self.log()
        try:
            return fetch(self.port, "/readyz")[0] == 200
        except OSError:
            return False

    def wait(self) -> int:
        return self._unshare.wait(DEADLINE_S)

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def close(self) -> None:
        for first in psutil.Process(self._unshare.pid).children() if self._unshare.poll() is None else []:
            first.kill()  # --kill-child does not reach who changed its user
        self._unshare.kill()
        self._unshare.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def contained() -> Iterator[tuple[RealServer, ContainedNode]]:
    if os.getuid() or not shutil.which("unshare") or _run("unshare", "--pid", "--fork", "true").returncode:
        pytest.skip("namespaces cannot be made here: that takes Linux and root")
    with RealServer() as server:
        node = ContainedNode(server.tcp_url)
        try:
            wait_until(node.is_ready, "the node is ready", DEADLINE_S)
            yield server, node
        finally:
            node.close()


def test_process_1_collects_orphans_and_ends_on_term_when_its_tasks_are_done(
    contained: tuple[RealServer, ContainedNode],
) -> None:
    server, node = contained
    app = App("shop", settings=Settings(redis_url=server.tcp_url))
    leave = app.task(name="shop.leave_orphans")(lambda _count: 0)
    nap = app.task(name="shop.nap")(lambda _seconds: "")

    assert leave.enqueue(30).result(DEADLINE_S) == USER
    assert {child.uids().real for child in node.first.children()} == {USER}
    wait_until(lambda: not _strangers(node.first), "all orphans are collected", DEADLINE_S)
    mounts = [line.split() for line in Path(f"/proc/{node.first.pid}/mountinfo").read_text().splitlines()]
    assert [line[5].split(",")[0] for line in mounts if line[4] == "/"] == ["ro"]

    job = nap.enqueue(2)
    wait_until(lambda: job.status() == "running", "it runs", DEADLINE_S)
    node.first.send_signal(signal.SIGTERM)

    assert job.result(DEADLINE_S) == "slept"
    assert node.wait() == 0, node.log()
    assert "the first process of a container" in node.log()


def _strangers(first: psutil.Process) -> list[psutil.Process]:
    """Children of process 1 that are dead and not collected, or none of the node's own."""
    found = []
    for child in first.children():
        try:
            title = "".join(child.cmdline()[:1])  # asked once: who ends between two looks has none left
            if child.status() == psutil.STATUS_ZOMBIE or not title.startswith("mqworker: "):
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
