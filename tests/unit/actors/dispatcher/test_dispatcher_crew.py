"""Who is given the next delivery."""

from mqworker.actors.dispatcher.workers import Crew, Flight, Hand


def a_flight(expected_ms: float = 1.0, *, is_alone: bool = False, is_async: bool = False) -> Flight:
    return Flight("default", b"", expected_ms, is_alone, is_async)


def a_crew(*names: str) -> Crew:
    crew = Crew()
    for name in names:
        crew.join(name).is_ready = True
    return crew


def chosen(hand: Hand | None) -> str | None:
    return None if hand is None else hand.name


def test_nobody_is_chosen_before_a_worker_is_ready() -> None:
    crew = Crew()
    crew.join("worker:0")

    assert crew.choose(1.0, is_async=False) is None
    assert crew.room(10) == 0


def test_the_worker_with_least_work_before_it_is_chosen() -> None:
    crew = a_crew("worker:0", "worker:1")
    crew["worker:0"].take(1, a_flight(5.0))

    assert chosen(crew.choose(1.0, is_async=False)) == "worker:1"


def test_a_worker_is_given_two_batches_ahead_and_no_more() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].take(1, a_flight(19.5))

    assert chosen(crew.choose(0.5, is_async=False)) == "worker:0"
    assert crew.choose(1.0, is_async=False) is None


def test_nothing_is_put_behind_a_slow_delivery() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].take(1, a_flight(10.0, is_alone=True))

    assert crew.choose(0.1, is_async=False) is None
    assert crew.room(100) == 0


def test_a_slow_or_unknown_delivery_goes_only_to_an_idle_worker() -> None:
    crew = a_crew("worker:0", "worker:1")
    crew["worker:0"].take(1, a_flight(0.1))

    assert chosen(crew.choose(None, is_async=False)) == "worker:1"
    crew["worker:1"].take(2, a_flight(10.0, is_alone=True))
    assert crew.choose(None, is_async=False) is None


def test_async_deliveries_do_not_count_as_work_of_the_main_thread() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].concurrency = 2
    crew["worker:0"].take(1, a_flight(10.0, is_async=True))

    assert chosen(crew.choose(None, is_async=True)) == "worker:0"
    assert chosen(crew.choose(None, is_async=False)) == "worker:0"
    crew["worker:0"].take(2, a_flight(10.0, is_async=True))
    assert crew.choose(None, is_async=True) is None


def test_a_worker_that_leaves_is_given_nothing() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].is_leaving = True

    assert crew.choose(0.1, is_async=False) is None
    assert crew.choose(None, is_async=True) is None
    assert crew.room(100) == 0


def test_a_reported_delivery_makes_room_again() -> None:
    crew = a_crew("worker:0")
    hand = crew["worker:0"]
    hand.take(1, a_flight(10.0, is_alone=True))

    dropped = hand.drop("default", 1)

    assert dropped is not None
    assert hand.drop("default", 1) is None
    assert (hand.busy_ms, hand.alone, hand.flights) == (0.0, 0, {})
    assert chosen(crew.choose(None, is_async=False)) == "worker:0"


def test_a_worker_is_not_given_more_bytes_than_its_pipe_may_hold() -> None:
    crew = a_crew("worker:0")
    long = Flight("default", b"x" * 1_000_000, 0.01, is_alone=False, is_async=False)
    given = 0
    while given < 100 and (hand := crew.choose(0.01, is_async=False)) is not None:
        given += 1
        hand.take(given, long)
    in_all = [crew.choose(None, is_async=False), crew.choose(0.01, is_async=True)]
    for fence in range(1, given + 1):
        crew["worker:0"].drop("default", fence)

    assert given == 34, "32 MiB and one more; the mailbox gives a peer up at 64"
    assert in_all == [None, None]
    assert crew["worker:0"].busy_bytes == 0
    assert crew.choose(0.01, is_async=False) is not None


def test_who_waits_for_an_idle_worker_keeps_the_one_that_is_idle_soonest() -> None:
    crew = a_crew("worker:0", "worker:1", "worker:2")
    crew["worker:0"].take(1, a_flight(10.0))
    crew["worker:1"].take(2, a_flight(5.0))
    crew["worker:2"].take(3, a_flight(50.0, is_alone=True))

    first, second = crew.keep_one(), crew.keep_one()
    kept = [hand.name for hand in crew if hand.is_kept]
    quick = crew.choose(0.1, is_async=False)
    crew.end_keeping()

    assert (first, kept) == (True, ["worker:1"])
    assert not second, "half of the workers at the most are kept"
    assert chosen(quick) == "worker:0"
    assert chosen(crew.choose(0.1, is_async=False)) == "worker:1"


def test_what_runs_alone_takes_as_long_as_it_takes_and_is_not_waited_for() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].take(1, a_flight(50.0, is_alone=True))

    assert not crew.keep_one()


def test_the_only_worker_may_be_kept() -> None:
    crew = a_crew("worker:0")
    crew["worker:0"].take(1, a_flight(5.0))

    assert crew.keep_one()
    assert crew.choose(0.1, is_async=False) is None


def a_mixed_crew() -> Crew:
    crew = a_crew("worker:0", "worker:1")
    crew["worker:0"].tasks = {"pay": {"version": "v1"}}
    crew["worker:1"].tasks = {"pay": {"version": "v2"}, "mail": {"version": "v1"}}
    crew.compare()
    return crew


def test_of_workers_with_different_code_only_those_that_know_a_task_are_given_it() -> None:
    crew = a_mixed_crew()

    assert crew.is_mixed
    assert {chosen(crew.choose(1.0, is_async=False, task=b"mail")) for _ in range(5)} == {"worker:1"}
    assert crew.choose(1.0, is_async=False, task=b"unknown") is None


def test_what_a_crew_knows_is_what_its_workers_know_that_take_work() -> None:
    crew = a_mixed_crew()

    known = dict(zip(crew.known_versions()[::2], crew.known_versions()[1::2], strict=True))
    assert known == {"pay": "-", "mail": "v1"}, "of several versions, any call may fit one"
    assert (crew.knows(b"mail"), crew.knows(b"unknown")) == (True, False)

    crew.retire("worker:1")
    assert (crew.knows(b"mail"), crew.known_versions()) == (False, ["pay", "v1"])

    crew.leave("worker:0")
    assert crew.knows(b"mail"), "nobody is there to be asked"


def test_who_wants_to_leave_is_kept_while_nobody_could_take_its_place() -> None:
    crew = Crew()
    hand = crew.join("worker:0")
    hand.is_ready = True
    crew.keep(are_kept=True)

    crew.retire("worker:0")
    is_kept = hand.has_room_alone()
    crew.keep(are_kept=False)

    assert is_kept
    assert hand.is_leaving


def test_who_does_not_want_to_leave_stays_when_all_may_go_again() -> None:
    crew = Crew()
    crew.join("worker:0")

    crew.keep(are_kept=True)
    crew.keep(are_kept=False)

    assert not crew["worker:0"].is_leaving
