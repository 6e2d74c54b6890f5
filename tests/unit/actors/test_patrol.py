"""In which order queues are looked at, and how many in a turn."""

from mqworker.actors.patrol import SLICE, Patrol
from mqworker.model.names import QueueName

NOW_MS = 50_000


def _names(count: int) -> list[QueueName]:
    return [QueueName(f"q{number}") for number in range(count)]


def _rounds(patrol: Patrol, *, until_ms: int, from_ms: int = NOW_MS) -> list[tuple[int, QueueName]]:
    looks, now_ms = [], from_ms
    while now_ms < until_ms:
        looks += [(now_ms, name) for name in patrol.take(now_ms)]
        now_ms += max(1, patrol.due_in_ms(now_ms))
    return looks


def test_few_queues_are_all_looked_at_once_per_interval() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(135))

    looks = _rounds(patrol, until_ms=NOW_MS + 3_000)

    assert len(looks) == 3 * 135
    assert {name for at_ms, name in looks if at_ms < NOW_MS + 1_000} == set(_names(135))


def test_thousands_take_longer_and_cost_no_more() -> None:
    patrol = Patrol(1_000, looks_per_s=1_000)
    patrol.add(_names(10_000))

    looks = _rounds(patrol, until_ms=NOW_MS + 10_000)

    assert len(looks) == 10_000
    assert {name for _, name in looks} == set(_names(10_000))


def test_a_turn_looks_at_one_slice() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(3_000), NOW_MS)

    assert len(patrol.take(NOW_MS)) == SLICE
    assert patrol.due_in_ms(NOW_MS) == 0


def test_seldom_looks_are_spread_over_their_interval() -> None:
    patrol = Patrol(60_000, looks_per_s=50)
    patrol.add(_names(30))

    looks = _rounds(patrol, until_ms=NOW_MS + 120_000)

    assert 58 <= len(looks) <= 62
    assert max(sum(1 for at_ms, _ in looks if at_ms == each) for each, _ in looks) == 1


def test_what_is_new_or_due_comes_before_its_turn() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(10_000))
    _rounds(patrol, until_ms=NOW_MS + 1_000)
    late = QueueName("q9999")

    patrol.hurry(late, NOW_MS + 1_300)

    assert (
        min(
            at_ms
            for at_ms, name in _rounds(patrol, from_ms=NOW_MS + 1_001, until_ms=NOW_MS + 2_000)
            if name == late
        )
        <= NOW_MS + 1_302
    )


def test_the_sooner_of_two_instants_counts_and_a_look_is_not_repeated() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(1))
    patrol.take(NOW_MS)
    patrol.hurry(QueueName("q0"), NOW_MS + 300)
    patrol.hurry(QueueName("q0"), NOW_MS + 100)
    patrol.hurry(QueueName("q0"), NOW_MS + 200)

    looks = _rounds(patrol, from_ms=NOW_MS + 1, until_ms=NOW_MS + 900)

    assert [at_ms for at_ms, _ in looks] == [NOW_MS + 100]


def test_all_are_looked_at_at_once_when_that_is_asked_for() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(10_000))
    _rounds(patrol, until_ms=NOW_MS + 1_000)

    patrol.hurry_all()

    looks = _rounds(patrol, from_ms=NOW_MS + 1_000, until_ms=NOW_MS + 1_100)
    assert {name for _, name in looks} == set(_names(10_000))


def test_queues_whose_server_is_away_are_left_out_but_for_one() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(10))
    away = set(_names(10)[:5])
    for name in away:
        patrol.note_away(name, NOW_MS)

    looks = _rounds(patrol, until_ms=NOW_MS + 5_000)
    probes = [name for _, name in looks if name in away]

    assert {name for _, name in looks} - away == set(_names(10)[5:])
    assert 0 < len(probes) <= 10


def test_they_all_come_back_when_that_one_answers() -> None:
    patrol = Patrol(1_000)
    patrol.add(_names(10))
    patrol.take(NOW_MS)
    for name in _names(10):
        patrol.note_away(name, NOW_MS)

    was_away = patrol.note_answer(QueueName("q3"), NOW_MS + 10)

    assert was_away
    assert set(patrol.take(NOW_MS + 10)) == set(_names(10))
