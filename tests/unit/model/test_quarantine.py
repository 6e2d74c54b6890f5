"""What is skipped is counted, shown and forgotten; and no parser of foreign data does anything but answer."""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqworker.actors.early_start.tickets import read_handed_over
from mqworker.errors import InvalidMessage
from mqworker.model.clock import ManualClock
from mqworker.model.names import (
    LARGEST_WHOLE,
    QueueName,
    parse_consumer_name,
    parse_message_id,
    parse_queue_name,
    parse_whole,
)
from mqworker.model.quarantine import (
    FORGOTTEN_AFTER_MS,
    MOST_COUNTED,
    MOST_ENTRIES,
    MOST_PLACES,
    BadEntry,
    BadPlace,
    Quarantine,
    entry_of,
    merged,
    place_of,
)
from mqworker.model.record import decode_record
from mqworker.queues.work.keys import TYPE_BY_PART, WorkQueueKeys
from mqworker.queues.work.snapshots import decode_node
from mqworker.tasks.running.progress import decode_progress
from mqworker.tasks.schedules.stored import decode_stored
from tests.drills.hostile import NASTY

PLACE = b"1 0:1:00112233445566ff "
FOREIGN = st.one_of(st.binary(max_size=200), st.sampled_from(NASTY))


def test_the_same_entry_again_is_counted_and_told_once() -> None:
    told: list[BadEntry] = []
    quarantine = Quarantine(on_new=told.append)

    for _ in range(5):
        quarantine.note("queue name", "mqw:queues", "no name", b"\xff", remove_by="SREM")

    (entry,) = quarantine.facts()["quarantine"]["entries"]
    assert len(told) == 1
    assert (entry["count"], entry["entry"]) == (5, "b'\\xff'")
    assert entry["removal"] == ["SREM", "mqw:queues", "ff"]


def test_what_is_not_seen_any_more_is_forgotten() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock)
    quarantine.note("wake-up", "channel", "no fence")

    clock.advance(ms=FORGOTTEN_AFTER_MS + 1)

    assert quarantine.facts() == {}


def test_memory_is_bounded_and_what_is_too_much_is_counted() -> None:
    quarantine = Quarantine()

    for number in range(10_000):
        quarantine.note("consumer", "key" * 1_000, "x" * 5_000, b"%d" % number * 2_000, remove_by="ZREM")

    facts = quarantine.facts()["quarantine"]
    assert len(facts["entries"]) == MOST_ENTRIES
    assert facts["skipped"] == 10_000
    assert all(len(str(entry)) < 2_000 for entry in facts["entries"])
    assert [(place["entries"], place["more"]) for place in facts["places"]] == [(10_000, False)]


def test_a_flood_in_one_place_hides_no_other_place() -> None:
    quarantine = Quarantine()
    for number in range(1_000):
        quarantine.note("queue name", "mqw:queues", "no name", b"%d" % number)

    for number in range(MOST_PLACES - 1):
        quarantine.note("consumer", f"mqw:{{q{number}}}:consumers", "no name", b"\xff")

    facts = quarantine.facts()["quarantine"]
    assert {entry["where"] for entry in facts["entries"]} == {place["where"] for place in facts["places"]}
    assert len(facts["places"]) == MOST_PLACES
    assert facts["more_places"] is False
    quarantine.note("consumer", "one place too many", "no name")
    assert quarantine.facts()["quarantine"]["more_places"] is True


def test_entries_that_differ_behind_what_is_shown_are_two() -> None:
    quarantine = Quarantine()

    for end in (b"a", b"b", b"a"):
        quarantine.note("topic", "mqw:topics", "no name", b"x" * 500 + end)

    (place,) = quarantine.facts()["quarantine"]["places"]
    assert (place["entries"], place["skipped"]) == (2, 3)


def test_more_than_can_be_counted_is_said_to_be_more() -> None:
    clock = ManualClock()
    quarantine = Quarantine(clock)
    for number in range(MOST_COUNTED + 1):
        quarantine.note("queue name", "mqw:queues", "no name", b"%d" % number)
    quarantine.note("topic", "mqw:topics", "no name", b"\xff")

    places = quarantine.facts()["quarantine"]["places"]

    assert [(place["entries"], place["more"]) for place in places] == [(MOST_COUNTED, True), (1, False)]
    clock.advance(ms=FORGOTTEN_AFTER_MS + 1)
    assert quarantine.facts() == {}


def test_what_several_processes_skip_in_one_place_is_counted_once() -> None:
    few, many = BadPlace("topic", "mqw:topics", 2, 9), BadPlace("topic", "mqw:topics", 3, 5, is_more=True)

    assert merged([few, many]) == [BadPlace("topic", "mqw:topics", 3, 9, is_more=True)]
    assert place_of(few.as_fields()) == few
    assert place_of({**few.as_fields(), "entries": "two"}) is None


def test_an_entry_survives_its_way_through_a_snapshot() -> None:
    quarantine = Quarantine()
    quarantine.note("fence", "mqw:{q}:held:x", ValueError("bad"), b"\xff\x00", remove_by="HDEL")
    (fields,) = quarantine.facts()["quarantine"]["entries"]

    bad = entry_of(fields)

    assert bad is not None
    assert bad.removal is not None
    assert (bad.removal.command, bad.removal.member) == ("HDEL", b"\xff\x00")
    assert entry_of({**fields, "removal": ["FLUSHALL", "x", ""]}).removal is None  # type: ignore[union-attr]
    assert entry_of({**fields, "kind": 7}) is None


def test_every_key_of_a_queue_has_a_type() -> None:
    keys = WorkQueueKeys.of("mqw", QueueName("q"))

    assert {key.removeprefix(keys.prefix) for key in keys.shared} <= set(TYPE_BY_PART)


@given(raw=FOREIGN)
@example(raw=b"a b")
@example(raw=b"x" * 129)
@settings(deadline=None)
def test_a_name_is_what_the_rule_says_or_nothing(raw: bytes) -> None:
    for parse in (parse_queue_name, parse_consumer_name, parse_message_id):
        name = parse(raw)
        assert name is None or (name.encode() == raw and 1 <= len(name) <= 128)


@given(raw=FOREIGN)
@settings(deadline=None)
def test_a_number_fits_into_its_place_or_is_none(raw: bytes) -> None:
    number = parse_whole(raw)
    assert number is None or 0 <= number <= LARGEST_WHOLE


@given(
    text=FOREIGN,
    prefix=st.sampled_from([b"", b"1 ", b"1 -", b"1 0:1:", PLACE, b"9" * 18 + b" "]),
)
@settings(deadline=None)
def test_a_wake_up_hands_over_numbers_that_fit_or_nothing(text: bytes, prefix: bytes) -> None:
    handed_over = read_handed_over(prefix + text)
    if handed_over is not None:
        assert 0 <= handed_over.fence <= LARGEST_WHOLE
        assert 0 <= handed_over.ticket < 10**20


@given(text=FOREIGN)
@settings(deadline=None)
def test_readers_answer_with_a_value_or_a_refusal(text: bytes) -> None:
    for read in (lambda: decode_record(text, 1), lambda: decode_stored(b"a", text)):
        try:
            read()
        except InvalidMessage:
            continue
    assert decode_node("stranger", text, 5).name == "stranger"
    decode_progress(text)
