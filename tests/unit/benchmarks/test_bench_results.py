"""The results of the benchmarks: kept step by step, compared within a round, shown as tables."""

from pathlib import Path

import pytest

from benchmarks.machine import busy_line
from benchmarks.pages import results_page
from benchmarks.report import conditions, spread, table, tables, times
from benchmarks.results import Results, ratios, values
from benchmarks.table import heading, recorded, row


def some_results() -> Results:
    results = Results()
    for name, label, drains in (("mqworker", "mqworker", (100, 300)), ("rq", "RQ", (10, 20))):
        results.peer(name)["label"] = label
        for number, drain in enumerate(drains):
            results.note_round(name, number, {"drain": drain})
    return results


def test_results_survive_in_their_file(tmp_path: Path) -> None:
    results = Results(tmp_path / "new" / "results.json")
    results.note_round("rq", 1, {"drain": 123.4567891})

    again = Results(tmp_path / "new" / "results.json")

    assert again.peer("rq")["rounds"] == [{}, {"drain": 123.457}]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["results.json"]


def test_a_round_is_there_when_all_its_figures_are() -> None:
    results = Results()
    results.note_round("rq", 0, {"drain": 1, "startup_s": 2})

    assert results.has_round("rq", 0, ["drain", "startup_s"])
    assert not results.has_round("rq", 0, ["drain", "enqueue_single"])
    assert not results.has_round("rq", 1, ["drain"])


def test_forgotten_figures_leave_the_others() -> None:
    results = Results()
    results.note_round("rq", 0, {"drain": 1, "startup_s": 2})

    results.forget_rounds("rq", ["drain"])

    assert results.peer("rq")["rounds"] == [{"startup_s": 2}]


def test_a_problem_is_noted_once() -> None:
    results = Results()
    results.note_problem("rq", "round 1: no")
    results.note_problem("rq", "round 1: no")

    assert results.peer("rq")["problems"] == ["round 1: no"]


def test_ratios_pair_the_same_round_and_skip_what_is_missing() -> None:
    ours = {"rounds": [{"drain": 100.0}, {"drain": 90.0}, {"drain": 80.0}]}
    theirs = {"rounds": [{"drain": 10.0}, {}, {"drain": 4.0}]}

    assert ratios(ours, theirs, "drain") == (10, 20)
    assert values(theirs, "drain") == (10, 4)


@pytest.mark.parametrize(
    ("numbers", "text"), [((), "-"), ((1234.4,), "1,234"), ((3, 1, 2), "2 (1 to 3)"), ((1, 4), "2 (1 to 4)")]
)
def test_a_spread_shows_the_median_and_the_range(numbers: tuple[float, ...], text: str) -> None:
    assert spread(numbers) == text


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    assert (times((10, 30, 12)), times(())) == ("12.0 times", "-")


def test_a_table_sets_figures_to_the_right_and_words_to_the_left() -> None:
    text = table(("peer", "per s", "call"), [("a|b", "1,000", "loop"), ("c", "-", "bulk")])

    assert text.splitlines() == [
        "| peer | per s | call |",
        "| --- | ---: | --- |",
        "| a\\|b | 1,000 | loop |",
        "| c | - | bulk |",
    ]


def test_the_drain_table_has_the_quickest_first_and_ratios_within_rounds() -> None:
    text = tables(some_results().data)

    ours, theirs = text.splitlines()[-2:]
    assert ours.startswith("| mqworker | 200 (100 to 300) | - |")
    assert theirs.startswith("| RQ | 15 (10 to 20) | 12.5 times |")


def test_measures_that_were_not_taken_have_no_table() -> None:
    text = tables(some_results().data)

    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "### Drain, two worker processes, tasks that do nothing"
    ]


def test_a_step_that_a_peer_does_not_reach_stays_empty() -> None:
    results = some_results()
    results.note("mqworker", "workers", {"1": {"drain": 10}, "2": {"drain": 20}})
    results.note("rq", "workers", {"1": {"drain": 3}})

    assert "| RQ | 3 | - |" in tables(results.data)


def test_a_queue_that_could_not_be_filled_says_how_long_it_was() -> None:
    results = some_results()
    step = {"queued": 18_000, "enqueue": 1_700, "drain": 800}
    results.note("rq", "length", {"10000": {**step, "queued": 10_000}, "100000": step})

    assert "| RQ | 1,700 in, 800 out | 1,700 in, 800 out (at 18,000) |" in tables(results.data)


def test_the_crash_table_shows_no_time_when_something_was_lost() -> None:
    results = some_results()
    figures = {"done_at_kill": 500, "not_run": 2, "twice": 0, "last_back_s": 1.25}
    results.note("rq", "crash", {"usual": figures, "safe": {**figures, "not_run": 0}})

    text = tables(results.data)

    assert "| RQ | usual | 500 | 2 | 0 | - |" in text
    assert "| RQ | safe | 500 | 0 | 0 | 1.2 |" in text


def test_problems_and_a_busy_machine_are_said_on_the_page() -> None:
    results = some_results()
    results.note_problem("rq", "crash, usual settings: its workers ended by themselves")
    results.data["foreign_cpu_percent"] = [3.0, 40.0, 20.0]
    results.data["own"] = {"store": [{"title": "Store", "rows": [["RPUSH", "1", ""]]}]}

    page = results_page(results.data, ["drain.png", "drain.svg"])

    assert "**busy machine**: other programs used 20 %" in conditions(results.data)
    assert "- RQ: crash, usual settings: its workers ended by themselves" in page
    assert "### Store" in page
    assert page.count("![") == 1


@pytest.mark.parametrize("samples", [[], [0.0, 15.0]])
def test_a_quiet_machine_is_not_mentioned(samples: list[float]) -> None:
    assert busy_line(samples) is None


def test_printed_tables_are_kept_while_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    row("before", "1")
    with recorded() as kept:
        heading("Title")
        row("name", "2", "note")
    heading("After")

    assert [(each.title, each.rows) for each in kept] == [("Title", [("name", "2", "note")])]
    assert "before" in capsys.readouterr().out
