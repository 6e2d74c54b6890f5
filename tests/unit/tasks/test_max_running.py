"""`max_running`: what is accepted, what is refused where it is given, and the text that a message carries."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from mqworker import App, Gq, MaxRunning
from mqworker.errors import ConfigurationError, InvalidArgument, NotSupported
from mqworker.model.fair import Fair
from mqworker.model.limits import limits_of, with_queue_limit
from mqworker.model.names import TaskName
from mqworker.model.rate import Rate
from mqworker.model.running import max_running_option

TASK = TaskName("shop.mail")
Bad: TypeAlias = Any
"""What no type checker would let through."""


def _text(max_running: object, **arguments: object) -> str:
    return limits_of(TASK, (), arguments, running=max_running_option(max_running))


def test_a_number_a_key_and_both_stand_in_the_limits() -> None:
    assert _text(4) == "shop.mail<=4"
    assert _text({"{tenant}": 2}, tenant="acme") == "shop.mail:acme<=2"
    assert _text([4, {"{tenant}": 2}], tenant="acme") == "shop.mail<=4|shop.mail:acme<=2"


def test_a_shared_name_stands_in_place_of_the_task() -> None:
    assert _text(MaxRunning(4, name="gpu")) == "$gpu<=4"
    assert _text(MaxRunning(4, key="{tenant}", name="gpu"), tenant="acme") == "$gpu:acme<=4"


def test_equal_values_of_different_keys_are_counted_apart() -> None:
    assert _text({"{one}": 1, "{other}": 2}, one="x", other="x").count("shop.mail:x<=") == 1


def test_it_stacks_with_rates_with_turns_and_with_the_limit_of_the_queue() -> None:
    limits = limits_of(
        TASK, (Rate("5/s"),), {"tenant": "a"}, Fair("{tenant}"), running=max_running_option({"{tenant}": 2})
    )

    assert limits == "fair=1~a|shop.mail:a<=2|shop.mail=5/1000/5"
    assert with_queue_limit(limits, 9) == "fair=1~a|@<=9|shop.mail:a<=2|shop.mail=5/1000/5"
    assert with_queue_limit("", 9) == "@<=9"


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -1,
        True,
        1.5,
        float("nan"),
        "4",
        {},
        {"{tenant}": 0},
        {"tenant": 1},
        {"{a.b}": 1},
        [4, 5],
        [None],
        10**9,
    ],
)
def test_what_is_no_limit_is_refused_and_told_what_is(bad: Bad) -> None:
    with pytest.raises(InvalidArgument, match="accepted"):
        App("shop").task(max_running=bad)


@pytest.mark.parametrize("bad", ["", "a b", "x" * 101, "é", 7])
def test_a_name_that_cannot_be_stored_is_refused(bad: Bad) -> None:
    with pytest.raises(InvalidArgument, match=r"name is .*accepted"):
        MaxRunning(1, name=bad)


def test_a_template_that_names_no_parameter_is_refused_when_the_task_is_defined() -> None:
    with pytest.raises(ConfigurationError, match=r"names tenant; accepted are its parameters to"):

        @App("shop").task(max_running={"{tenant}": 1})
        def mail(to: str) -> None: ...


def test_one_name_has_one_number() -> None:
    app = App("shop")
    app.task(name="one", max_running=MaxRunning(4, name="gpu"))(lambda: None)
    app.task(name="same", max_running=MaxRunning(4, name="gpu"))(lambda: None)

    with pytest.raises(ConfigurationError, match="gpu is 5 in other and 4 in one; accepted is one number"):
        app.task(name="other", max_running=MaxRunning(5, name="gpu"))(lambda: None)


def test_what_runs_at_most_once_cannot_be_counted() -> None:
    with pytest.raises(InvalidArgument, match=r"at_most_once.*accepted"):
        App("shop").task(max_running=1, delivery="at_most_once")


def test_queues_of_other_models_refuse_it() -> None:
    app = App("shop")
    app.queue("verify", model=Gq())

    with pytest.raises(NotSupported, match="max_running"):
        app.task(name="t", queue="verify", max_running=1)(lambda: None)
    with pytest.raises(NotSupported, match="max_running"):
        app.queue("other", model=Gq(), max_running=1)
