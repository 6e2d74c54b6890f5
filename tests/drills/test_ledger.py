"""The instrument itself: each wrong that a drill looks for is planted here, and found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.ledger import Account, Ending
from tests.support.ledger import LedgerWriter, Line, read_ledger

GOOD: list[Line] = [
    ("T", "work-1"),
    ("P", "work-1", "m1"),
    ("E", "work-1", "m1", "1", "7", "100", "5"),
]
ACK = Ending("m1", 1, "succeeded")
AGAIN: Line = ("E", "work-1", "m1", "2", "8", "101", "9")


def test_a_clean_account_has_nothing_to_say() -> None:
    account = Account(GOOD, [ACK])

    account.check()

    assert (account.duplicates, account.lost, account.out_of_order) == (0, set(), 0)


@pytest.mark.parametrize(
    ("lines", "endings", "complaint"),
    [
        ([*GOOD, ("T", "work-2"), ("P", "work-2", "m2")], [ACK, Ending("m2", 1, "buried")], "lost"),
        (GOOD, [], "never settled"),
        (GOOD, [ACK, Ending("m1", 2, "succeeded")], "twice"),
        ([*GOOD, ("E", "work-9", "m9", "1", "9", "100", "6")], [ACK], "never published"),
        ([*GOOD, ("E", "work-1", "m2", "1", "9", "100", "6")], [ACK], "stored twice"),
        ([*GOOD, AGAIN], [ACK, Ending("m1", 2, "reclaimed")], "unexplained"),
        (GOOD, [ACK, Ending("m1", 1, "released")], "in no state"),
        (GOOD, [ACK, Ending("m2", 1, "succeeded")], "never run"),
    ],
)
def test_what_is_wrong_is_found(lines: list[Line], endings: list[Ending], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        Account(lines, endings).check()


@pytest.mark.parametrize("strike", [("K", "100", "worker:0"), ("S", "100", "node")])
def test_a_duplicate_of_a_struck_process_is_explained(strike: Line) -> None:
    endings = [Ending("m1", 1, "reclaimed"), Ending("m1", 2, "succeeded")]

    account = Account([*GOOD, AGAIN, strike], endings)

    account.check()
    assert (account.duplicates, len(account.unexplained)) == (1, 0)


def test_a_duplicate_of_a_worker_that_the_supervisor_ended_is_explained() -> None:
    endings = [Ending("m1", 1, "reclaimed"), Ending("m1", 2, "succeeded")]

    Account([*GOOD, AGAIN], endings, {100: "the dispatcher ended (SIGKILL)"}).check()
    with pytest.raises(AssertionError, match="unexplained"):
        Account([*GOOD, AGAIN], endings, {100: "SIGKILL"}).check()


def test_a_retry_is_no_duplicate() -> None:
    account = Account([*GOOD, AGAIN], [Ending("m1", 1, "retried"), Ending("m1", 2, "succeeded")])

    account.check()
    assert account.duplicates == 0


def test_lines_are_read_as_they_were_written_and_a_torn_one_is_left_out(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path)
    writer.note_all(("T", f"work-{number}") for number in range(2_000))
    with next(tmp_path.iterdir()).open("a") as file:
        file.write("E half-a-li")

    lines = read_ledger(tmp_path)

    assert lines == [("T", f"work-{number}") for number in range(2_000)]
