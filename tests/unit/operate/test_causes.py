"""Dead letters of one mistake are one group."""

from mqworker.model.dead_letter import DeadLetter
from mqworker.model.names import MessageId
from mqworker.operate.causes import group, own_frame

TRACE = """Traceback (most recent call last):
  File "/usr/lib/python3.12/site-packages/mqworker/tasks/running/run.py", line 3, in run
  File "/home/me/shop/orders.py", line {line}, in charge
  File "/usr/lib/python3.12/ssl.py", line 1, in connect
ValueError: no
"""


def a_letter(number: int, *, error: str = "ValueError", line: int = 12, message: str = "no") -> DeadLetter:
    return DeadLetter(
        MessageId(f"m{number}"), 1_000 + number, "retries", error, message, TRACE.format(line=line)
    )


def test_the_own_frame_is_the_innermost_that_is_neither_pythons_nor_a_librarys() -> None:
    assert own_frame(TRACE.format(line=12)) == "shop/orders.py:12 in charge"


def test_letters_of_the_same_error_at_the_same_place_are_one_cause_whatever_they_say() -> None:
    causes = group(
        [
            ("mail", a_letter(1, message="no a")),
            ("mail", a_letter(2, message="no b")),
            ("mail", a_letter(3, line=99)),
        ]
    )

    assert [(cause.count, cause.frame) for cause in causes] == [
        (2, "shop/orders.py:12 in charge"),
        (1, "shop/orders.py:99 in charge"),
    ]
    assert (causes[0].first_at_ms, causes[0].last_at_ms, causes[0].ids) == (1_001, 1_002, ("m2", "m1"))


def test_a_cause_belongs_to_one_queue() -> None:
    causes = group([("a", a_letter(1)), ("b", a_letter(2))])

    assert len({cause.id for cause in causes}) == 2


def test_secrets_in_what_a_letter_says_are_masked() -> None:
    (cause,) = group([("a", a_letter(1, message="token=abc123"))])

    assert "abc123" not in cause.message


def test_no_letters_are_no_causes() -> None:
    assert group([]) == []
