"""Two checkouts compared: what counts as worse, and what is refused."""

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.against import RevisionUnknown, checkout_of, compare, comparison_table


def test_above_one_is_better_whatever_the_figure_is() -> None:
    found = compare([{"drain": 200.0, "light_p50": 1.0}], [{"drain": 100.0, "light_p50": 2.0}])

    assert [(each.figure, each.ratios) for each in found] == [("drain", (2.0,)), ("light_p50", (2.0,))]
    assert {each.verdict for each in found} == {"better"}


def test_worse_is_what_every_round_shows_by_more_than_noise() -> None:
    steady = compare([{"drain": 90.0}, {"drain": 80.0}], [{"drain": 100.0}, {"drain": 100.0}])
    mixed = compare([{"drain": 70.0}, {"drain": 101.0}], [{"drain": 100.0}, {"drain": 100.0}])
    small = compare([{"drain": 98.0}, {"drain": 97.0}], [{"drain": 100.0}, {"drain": 100.0}])

    assert [each.verdict for each in (*steady, *mixed, *small)] == ["worse", "same", "same"]


def test_what_only_one_of_them_has_is_left_out() -> None:
    found = compare(
        [{"drain": 1.0, "new": 5.0, "drain_missing": 0.0}, {}], [{"drain": 1.0, "drain_missing": 0.0}, {}]
    )

    assert [each.figure for each in found] == ["drain"]


def test_the_table_names_the_revision_and_the_verdict() -> None:
    text = comparison_table(compare([{"drain": 90.0}], [{"drain": 100.0}]), "HEAD~1")

    assert "| figure | here | HEAD~1 |" in text
    assert "| 0.90 | worse |" in text


def test_a_revision_that_is_not_there_is_named() -> None:
    refusal = pytest.raises(RevisionUnknown, match="--against is 'no-such-revision'; accepted is a revision")
    with refusal, checkout_of("no-such-revision"):
        pytest.fail("it was checked out")


def test_a_measure_that_cannot_be_compared_is_refused() -> None:
    result = CliRunner().invoke(main, ["--against", "HEAD", "--only", "store"])

    assert result.exit_code == 2
    assert "--only is store; accepted with --against are" in result.output
