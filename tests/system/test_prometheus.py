"""Alerts and board in deploy/: every expression is checked by promtool, and asked of a real Prometheus.

Needs Debian's package `prometheus`; without it the tests are skipped, and say so.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqworker import App
from mqworker.settings import Settings
from tests.support.deadline import wait_until
from tests.support.monitored_node import MonitoredNode
from tests.support.node_process import ROOT
from tests.support.real_node import DEADLINE_S
from tests.support.real_server import RealServer, free_port

RULES = ROOT / "deploy/prometheus/mqworker.rules.yml"
BOARD = ROOT / "deploy/grafana/mqworker.json"
GUIDE = ROOT / "docs/operate/monitoring.md"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not here: apt install prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not here: apt install it")

# What makes each alert fire after a while, and what is fine beside it; values as promtool writes series.
SYSTEM = {"instance": "n1", "job": "mqworker"}
CASES: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "MqworkerRedisDown": ({"mqworker_redis_up{}": "0x90"}, {'mqworker_redis_up{instance="n2"}': "1x90"}),
    "MqworkerRedisAlmostFull": (
        {"mqworker_redis_used_bytes{}": "90x90", "mqworker_redis_limit_bytes{}": "100x90"},
        {"mqworker_redis_limit_bytes{}": "200x90"},
    ),
    "MqworkerNoNode": (
        {'mqworker_nodes{state="running"}': "0x90"},
        {'mqworker_nodes{state="running",instance="n2"}': "3x90"},
    ),
    "MqworkerDown": (
        {'mqworker_health{mqworker_health="down"}': "1x90"},
        {'mqworker_health{mqworker_health="down"}': "0x90"},
    ),
    "MqworkerQuarantine": (
        {"mqworker_quarantined_entries{}": "2x90"},
        {"mqworker_quarantined_entries{}": "0x90"},
    ),
    "MqworkerQueueWaitsLong": (
        {'mqworker_queue_oldest_seconds{queue="mail"}': "0+60x90"},
        {'mqworker_queue_oldest_seconds{queue="mail"}': "250x90"},
    ),
    "MqworkerQueueNotConsumed": (
        {
            'mqworker_queue_messages{queue="mail",state="ready"}': "5x90",
            'mqworker_queue_messages{queue="mail",state="held"}': "0x90",
            'mqworker_queue_consumed{queue="mail"}': "0x90",
        },
        {'mqworker_queue_consumed{queue="mail"}': "1x90"},
    ),
    "MqworkerQueuePaused": (
        {
            'mqworker_queue_messages{queue="mail",state="ready"}': "5x90",
            'mqworker_queue_paused{queue="mail"}': "1x90",
        },
        {'mqworker_queue_paused{queue="mail"}': "0x90"},
    ),
    "MqworkerQueueUnreadable": (
        {'mqworker_queue_unreadable{queue="mail"}': "1x90"},
        {'mqworker_queue_unreadable{queue="mail"}': "0x90"},
    ),
    "MqworkerDeadLetters": (
        {'mqworker_messages_total{queue="mail",event="buried"}': "0+1x90"},
        {'mqworker_messages_total{queue="mail",event="buried"}': "7x90"},
    ),
    "MqworkerManyRetries": (
        {
            'mqworker_messages_total{queue="mail",event="retried"}': "0+9x90",
            'mqworker_messages_total{queue="mail",event="succeeded"}': "0+30x90",
        },
        {'mqworker_messages_total{queue="mail",event="retried"}': "0+5x90"},
    ),
    "MqworkerNobodyKnowsTheTask": (
        {'mqworker_parked_messages{queue="mail"}': "1x90"},
        {'mqworker_parked_messages{queue="mail"}': "0x90"},
    ),
    "MqworkerActorDown": (
        {'mqworker_actor_up{actor="broker"}': "0x90"},
        {'mqworker_actor_up{actor="broker"}': "1x90"},
    ),
    "MqworkerActorRestarts": (
        {'mqworker_actor_restarts_total{actor="broker",cause="crashed"}': "0+1x90"},
        {
            'mqworker_actor_restarts_total{actor="broker",cause="crashed"}': "9x90",
            'mqworker_actor_restarts_total{actor="worker",cause="retired"}': "0+50x90",
        },
    ),
    "MqworkerActorSilent": (
        {'mqworker_actor_silent_seconds{actor="broker"}': "6x90"},
        {'mqworker_actor_silent_seconds{actor="broker"}': "1x90"},
    ),
    "MqworkerLostLeases": (
        {"mqworker_lost_leases_total{}": "0+1x90"},
        {"mqworker_lost_leases_total{}": "3x90"},
    ),
    "MqworkerWorkersBusy": (
        {
            'mqworker_workers{state="idle"}': "0x90",
            'mqworker_queue_oldest_seconds{queue="mail"}': "100x90",
        },
        {'mqworker_workers{state="idle"}': "1x90"},
    ),
}


def rules() -> list[dict[str, str]]:
    """Name, sentence and page of each alert; read line by line, for no parser of YAML is needed for that."""
    text = RULES.read_text()
    pieces = text.split("- alert: ")[1:]
    return [
        {
            "alert": piece.split("\n")[0].strip(),
            "summary": _value(piece, "summary"),
            "runbook_url": _value(piece, "runbook_url"),
        }
        for piece in pieces
    ]


def _value(piece: str, name: str) -> str:
    found = re.search(rf"^ +{name}: (.+)$", piece, re.MULTILINE)
    return found[1].strip("'") if found else ""


def board_expressions() -> list[str]:
    board = json.loads(BOARD.read_text())
    return [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]


def test_every_alert_has_a_sentence_and_a_page_that_explains_it() -> None:
    headings = re.findall(r"^#+ (.+)$", GUIDE.read_text(), re.MULTILINE)
    anchors = {f"docs/operate/monitoring.md#{heading.lower()}" for heading in headings}

    wrong = [
        rule["alert"]
        for rule in rules()
        if not rule["summary"].endswith(".") or rule["runbook_url"] not in anchors
    ]

    assert wrong == []
    assert {rule["alert"] for rule in rules()} == CASES.keys()


def test_what_rules_and_board_ask_for_is_exported() -> None:
    asked = set(re.findall(r"\bmqworker_[a-z_]+", RULES.read_text() + BOARD.read_text()))
    source = "".join(path.read_text() for path in (ROOT / "mqworker/operate/metrics").glob("*.py"))
    exported = set(re.findall(r'"(mqworker_[a-z_]+)"', source))

    assert {re.sub(r"_(total|bucket|info)$", "", name) for name in asked} <= exported


@needs_promtool
def test_promtool_finds_nothing_wrong() -> None:
    for command in (["rules", str(RULES)], ["config", str(RULES.with_name("prometheus.yml"))]):
        done = subprocess.run([str(PROMTOOL), "check", *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_every_alert_fires_when_it_should_and_not_when_it_should_not(tmp_path: Path) -> None:
    tests = [_rule_test(alert, wrong, fires=True) for alert, (wrong, _) in CASES.items()]
    tests += [_rule_test(alert, {**wrong, **fine}, fires=False) for alert, (wrong, fine) in CASES.items()]
    file = tmp_path / "test.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))

    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-3_000:]


def _rule_test(alert: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    """How many of this alert fire after an hour: as a query, so that no label has to be told."""
    labelled = {_with_instance(name): values for name, values in series.items()}
    return {
        "name": f"{alert} {'fires' if fires else 'does not fire'}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in labelled.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
                "eval_time": "60m",
                "exp_samples": [{"labels": "{}", "value": int(fires)}],
            }
        ],
    }


def _with_instance(series: str) -> str:
    if "instance=" in series:
        return series
    name, _, labels = series.partition("{")
    return f'{name}{{instance="n1"' + ("" if labels == "}" else ",") + labels


class Prometheus:
    """A real one, with the rules of deploy/ and no patience: what should wait for minutes fires at once."""

    def __init__(self, directory: Path, target: str) -> None:
        self._address = f"127.0.0.1:{free_port()}"
        directory.mkdir()
        (directory / "mqworker.rules.yml").write_text(re.sub(r"for: \d+m", "for: 0s", RULES.read_text()))
        config = RULES.with_name("prometheus.yml").read_text()
        config = config.replace("15s", "500ms").replace("node:9464", target)
        (directory / "prometheus.yml").write_text(config)
        self._log = (directory / "log").open("wb")
        self.process = subprocess.Popen(
            [
                str(PROMETHEUS),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self._address}",
            ],
            stdout=self._log,
            stderr=self._log,
        )

    def ask(self, path: str, **query: str) -> Any:  # noqa: ANN401 - what JSON holds
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return json.load(answer)["data"]

    def is_up(self) -> bool:
        try:
            return bool(self.ask("query", query="up == 1")["result"])
        except OSError:
            return False

    def firing(self) -> set[str]:
        return {
            each["labels"]["alertname"] for each in self.ask("alerts")["alerts"] if each["state"] == "firing"
        }

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(DEADLINE_S)
        self._log.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[tuple[RealServer, MonitoredNode, Prometheus]]:
    with RealServer() as server, MonitoredNode(server.url, {"MQWORKER_GATEWAYS": "skmq=127.0.0.1:0"}) as node:
        prometheus = Prometheus(tmp_path / "prometheus", f"127.0.0.1:{node.port}")
        try:
            yield server, node, prometheus
        finally:
            prometheus.close()


@needs_prometheus
def test_a_real_prometheus_scrapes_a_node_evaluates_every_rule_and_draws_every_panel(
    scene: tuple[RealServer, MonitoredNode, Prometheus],
) -> None:
    server, node, prometheus = scene
    app = App("shop", settings=Settings(redis_url=server.url))
    send, fail = (app.task(name=f"shop.{name}", queue="mail")(lambda *_: None) for name in ("send", "fail"))
    send.enqueue(1)  # so that its queue is known, and counted from 0
    wait_until(prometheus.is_up, "Prometheus scrapes", DEADLINE_S)
    wait_until(lambda: _has(prometheus, "mqworker_messages_total"), "the queue is seen", DEADLINE_S)

    for number in range(20):
        send.enqueue(number)
        fail.enqueue()
    send.using(queue="nobodys").enqueue(1)
    app.work_queue("paused").pause()
    send.using(queue="paused").enqueue(1)
    for _ in range(5):
        node.kill("dispatcher")
    expected = {
        "MqworkerDeadLetters",
        "MqworkerQueueNotConsumed",
        "MqworkerQueuePaused",
        "MqworkerActorRestarts",
    }
    wait_until(lambda: expected <= prometheus.firing(), "what should fire fires", DEADLINE_S)

    found = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["name"]: rule["lastError"] for rule in found if rule["health"] != "ok"} == {}
    assert len(found) == len(CASES)
    fine = {"MqworkerRedisDown", "MqworkerNoNode", "MqworkerActorDown"}
    wait_until(lambda: not prometheus.firing() & fine, "what is mended is quiet again", DEADLINE_S)

    def is_every_panel_drawn() -> bool:
        send.enqueue(0)  # a rate needs something that grows between two scrapes
        return all(_has(prometheus, _as_asked(each)) for each in board_expressions())

    wait_until(is_every_panel_drawn, "every panel shows something", DEADLINE_S)


def _as_asked(expression: str) -> str:
    """With what Grafana puts in."""
    return expression.replace("$__rate_interval", "1m").replace("$queue", ".*")


def _has(prometheus: Prometheus, expression: str) -> bool:
    return bool(prometheus.ask("query", query=expression)["result"])
