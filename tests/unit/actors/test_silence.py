"""Whom one may take for silent: as far as one could hear, and on a fresh reading alone."""

from mqworker.actors.silence import SilenceWatch
from mqworker.queues.work.heartbeat import Reading

TIMEOUT_MS = 5_000


class Listener:
    """A watch that is read to every second; `beats` are what the servers know."""

    def __init__(self) -> None:
        self.watch = SilenceWatch(TIMEOUT_MS)
        self.now_ms = 100_000
        self.beats: dict[str, dict[str, bytes]] = {"one": {}}
        self.timeout_ms: dict[str, int] = {}
        self.round_trip_ms = 0

    def hear(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.now_ms += 1_000
            for key, beats in self.beats.items():
                asked_at_ms = self.now_ms - self.round_trip_ms
                self.watch.note(Reading(key, asked_at_ms, self.now_ms, dict(beats), self.timeout_ms))

    def is_silent(self, consumer: str = "a") -> bool:
        return self.watch.is_silent(consumer, self.now_ms)


def test_silent_is_whose_beat_did_not_change_for_a_whole_time_out() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.hear(5)
    was_silent_early = listener.is_silent()

    listener.hear(1)

    assert not was_silent_early
    assert listener.is_silent()


def test_a_beat_that_goes_back_in_time_is_a_beat() -> None:
    listener = Listener()
    for beat in (b"1000", b"900", b"5", b"99999", b"98"):  # a failover, a clock that was set
        listener.beats["one"] = {"a": beat}
        listener.hear(4)

        assert not listener.is_silent()


def test_whoever_beats_on_any_server_is_alive() -> None:
    listener = Listener()
    listener.beats = {"one": {"a": b"1"}, "two": {"a": b"1"}}
    for second in range(20):
        listener.beats["two"] = {"a": str(second).encode()}
        listener.hear()

        assert not listener.is_silent()


def test_one_who_never_beat_is_silent_only_after_we_listened_for_a_time_out() -> None:
    listener = Listener()
    listener.hear(5)
    was_silent_early = listener.is_silent("never")

    listener.hear(1)

    assert not was_silent_early
    assert listener.is_silent("never")


def test_after_a_time_in_which_nothing_was_heard_everybody_gets_a_whole_time_out() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.hear(3)
    listener.now_ms += 60_000

    listener.hear(5)
    was_silent_early = listener.is_silent()
    listener.hear(1)

    assert not was_silent_early
    assert listener.is_silent()


def test_nobody_is_called_silent_on_an_old_reading() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.hear(6)
    assert listener.is_silent()

    listener.now_ms += 60_000  # stopped, and continued

    assert not listener.is_silent()


def test_silence_lasts_until_the_question_not_until_the_answer() -> None:
    listener = Listener()
    listener.round_trip_ms = 2_000
    listener.beats["one"] = {"a": b"1"}
    listener.hear(7)
    was_silent_early = listener.is_silent()

    listener.hear(1)

    assert not was_silent_early
    assert listener.is_silent()


def test_a_consumer_that_is_listed_no_more_is_forgotten() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.hear(7)
    silent_before = listener.watch.silent(listener.now_ms)
    listener.beats["one"] = {}

    listener.hear()

    assert silent_before == {"a"}
    assert listener.watch.silent(listener.now_ms) == set()
    assert listener.is_silent()


def test_a_node_with_a_longer_time_out_than_ours_is_waited_for_as_long_as_it_wishes() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.timeout_ms = {"a": 30_000}
    listener.hear(29)
    was_silent_early = listener.is_silent()

    listener.hear(2)

    assert not was_silent_early
    assert listener.is_silent()


def test_a_node_with_a_shorter_time_out_than_ours_is_waited_for_as_long_as_we_do() -> None:
    listener = Listener()
    listener.beats["one"] = {"a": b"1"}
    listener.timeout_ms = {"a": 300}

    listener.hear(5)

    assert not listener.is_silent()


def test_a_server_that_drops_a_consumer_from_its_list_ends_nobodys_time_out() -> None:
    listener = Listener()  # its clock was set forward by a day: whoever is not beating just now looks old
    listener.beats["one"] = {"a": b"1", "b": b"1"}
    listener.timeout_ms = {"a": 30_000}
    listener.hear(2)
    listener.beats["one"] = {"b": b"2"}
    listener.timeout_ms = {}
    listener.hear(20)

    assert listener.watch.is_listed("a")
    assert not listener.is_silent()


def test_a_consumer_that_was_dropped_and_is_back_is_watched_as_before() -> None:
    listener = Listener()
    for second in range(20):
        listener.beats["one"] = {"a": str(second).encode()} if second % 3 else {}
        listener.hear()

        assert not listener.is_silent()
    listener.hear(6)

    assert listener.watch.silent(listener.now_ms) == {"a"}
