"""A real node with its port for probes and metrics; every scrape is checked with Prometheus' parser."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.support.deadline import wait_until
from tests.support.real_node import DEADLINE_S, RealNode

APP = """
import time
from mqworker import App, Retry

app = App("shop")

@app.task(queue="mail")
def send(number: int) -> int:
    return number

@app.task(queue="mail", retry=Retry(max=1, first=0.01))
def fail() -> None:
    raise ValueError("no")

@app.task(queue="slow")
def nap(seconds: float) -> None:
    time.sleep(seconds)
"""
CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""By name and labels."""


class MonitoredNode(RealNode):
    """`mqworker run shop:app --http 127.0.0.1:0`."""

    def __init__(self, redis_url: str, settings: Mapping[str, str] | None = None, app: str = APP) -> None:
        usual = {"MQWORKER_HTTP": "127.0.0.1:0", "MQWORKER_WORKERS": "2"}
        super().__init__(redis_url, "shop:app", settings={**usual, **(settings or {})})
        (self.directory / "shop.py").write_text(app)

    @property
    def port(self) -> int:
        """The port that the system chose."""
        wait_until(lambda: self.facts("monitor").get("listens"), "the monitor listens", DEADLINE_S)
        return int(self.facts("monitor")["listens"].rpartition(":")[2])

    def get(self, path: str, port: int | None = None) -> tuple[int, str]:
        """Status and text."""
        status, _, text = fetch(port or self.port, path)
        return status, text

    def scrape(self, path: str = "/metrics") -> Values:
        """All samples, as Prometheus' own parser reads them."""
        status, content_type, text = fetch(self.port, path)
        assert (status, content_type) == (200, CONTENT_TYPE), text
        return parsed(text)

    def scale(self, queue: str, query: str = "") -> dict[str, Any]:
        """The document for an autoscaler."""
        status, text = self.get(f"/scale/{queue}{query}")
        assert status == 200, text
        document: dict[str, Any] = json.loads(text)
        return document


def fetch(port: int, path: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    finally:
        connection.close()


def parsed(text: str) -> Values:
    """The samples of a scrape; fails where the format is not kept, or a sample is there twice."""
    values: Values = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values, key
            values[key] = sample.value
    return values


def value(values: Values, name: str, **labels: str) -> float:
    """One sample; 0 where there is none."""
    return values.get((name, tuple(sorted(labels.items()))), 0.0)


def counters(values: Values) -> Values:
    """Those that must never become less."""
    grows = ("_total", "_bucket", "_count", "_sum")
    return {key: number for key, number in values.items() if key[0].endswith(grows)}


def raw_answer(port: int, request: bytes) -> bytes:
    """What comes back for these bytes, to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as link:
        link.sendall(request)
        received = b""
        while piece := link.recv(65_536):
            received += piece
        return received


def open_files(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
