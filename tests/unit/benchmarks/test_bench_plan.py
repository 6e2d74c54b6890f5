"""What `python -m benchmarks` is going to do, from what was typed."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.crash import crash_turns
from benchmarks.own import run_own
from benchmarks.peer import PEER_BY_NAME, PEERS, Peer
from benchmarks.peer_run import PEER_MEASURES
from benchmarks.plan import QUICK, make_plan
from benchmarks.registry import OwnMeasure
from benchmarks.session import ADAPTERS


def names(parts: Sequence[OwnMeasure | Peer]) -> list[str]:
    return [part.name for part in parts]


def test_without_options_the_quick_measures_of_mqworker_run() -> None:
    plan = make_plan((), ())

    assert names(plan.peers) == ["mqworker"]
    assert plan.peer_measures == set(QUICK)
    assert "store" in names(plan.own)
    assert "pipeline" not in names(plan.own)


def test_one_measure_of_one_peer() -> None:
    plan = make_plan(("drain",), ("dramatiq",))

    assert (names(plan.own), names(plan.peers), plan.peer_measures) == ([], ["dramatiq"], {"drain"})


def test_all_peers_get_all_measures_and_nothing_else_runs() -> None:
    plan = make_plan((), ("all",))

    assert (plan.own, plan.peers, plan.peer_measures) == ((), PEERS, set(PEER_MEASURES))


def test_a_measure_of_the_registry_needs_no_peer() -> None:
    plan = make_plan(("store",), ())

    assert (names(plan.own), plan.peer_measures) == (["store"], set())


def test_a_peer_named_twice_runs_once() -> None:
    assert names(make_plan((), ("rq", "huey", "rq")).peers) == ["rq", "huey"]


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_has_an_adapter_and_exact_versions(peer: Peer) -> None:
    assert (ADAPTERS / peer.adapter).is_file()
    assert all("==" in pin or "@" in pin for pin in peer.requirements)


def test_a_crash_is_measured_with_usual_and_with_safe_settings_where_they_differ() -> None:
    turns = crash_turns([PEER_BY_NAME["mqworker"], PEER_BY_NAME["celery"], PEER_BY_NAME["celery-stock"]])

    assert [(turn.peer.name, turn.variant, turn.name) for turn in turns] == [
        ("mqworker", "tuned", "usual"),
        ("celery", "tuned", "usual"),
        ("celery", "safe", "safe"),
        ("celery-stock", "stock", "usual"),
    ]


def test_a_measure_that_cannot_run_costs_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    run_own([OwnMeasure("moon", "benchmarks.moon", "not there")], rounds=1)

    assert "moon: skipped, No module named 'benchmarks.moon'" in capsys.readouterr().out


def test_help_names_every_measure_and_peer() -> None:
    shown = CliRunner().invoke(main, ["--help"]).output

    assert all(name in shown for name in (*PEER_MEASURES, *PEER_BY_NAME))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "speed"], "'speed' is not one of"),
        (["--peer", "sidekiq"], "'sidekiq' is not one of"),
        (["--rounds", "0"], "0 is not in the range"),
        (["--resume"], "--resume: got no --json FILE"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], complaint: str) -> None:
    outcome = CliRunner().invoke(main, arguments)

    assert outcome.exit_code == 2
    assert complaint in outcome.output


@pytest.mark.parametrize("text", ["", "no json", "[1]", '{"other": 1}'])
def test_a_file_that_is_not_of_a_run_is_refused_and_kept(text: str, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(text, encoding="utf-8")

    outcome = CliRunner().invoke(main, ["--only", "drain", "--json", str(file)])

    assert outcome.exit_code == 2
    assert "accepted: a new file, or one of an earlier run" in " ".join(outcome.output.split())
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("adapter", sorted(ADAPTERS.glob("*_peer.py")), ids=lambda path: path.stem)
def test_every_adapter_is_python_that_parses(adapter: Path) -> None:
    assert compile(adapter.read_text(encoding="utf-8"), str(adapter), "exec")
