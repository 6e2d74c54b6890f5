"""Rows are moved once each: whoever dies between two statements, stands still, or comes twice."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from mqworker.model.instant import After
from mqworker.tasks.ids import next_id
from mqworker.tasks.outbox.tables import BAD, ROWS, STATE
from tests.outbox.places import HOUR_MS, KillAt, OutboxPlace, dying
from tests.support.deadline import wait_until

MOST_STEPS = 200


def one_life(place: OutboxPlace, on_step: KillAt) -> bool:
    """A mover that moves, deletes what was kept long enough, and moves again; whether it died on the way."""
    with dying():
        mover = place.mover(on_step, keep_ms=0)
        for _ in range(2):
            place.time.ms += 6_000
            mover.move()
            mover.delete_moved()
        return False
    return True


def test_a_mover_killed_between_any_two_statements_moves_each_row_once(place: OutboxPlace) -> None:
    place.queues = ("q", "r")
    died = 0
    for step in range(1, MOST_STEPS):
        place.commit(4)
        has_died = one_life(place, KillAt(step))
        place.run_all()  # before the repetition: nothing in the queues tells it that they were there
        place.move_all(place.mover(keep_ms=0))
        place.run_all()
        if not has_died:
            break
        died += 1

    assert died > 20
    place.assert_each_ran_once()


class StoppedMover:
    """A mover in a thread of its own, which stands still at its so-and-so-manieth step until it may go on."""

    def __init__(self, place: OutboxPlace, step: int) -> None:
        self._step, self._seen = step, 0
        self._stands, self._may_go_on = threading.Event(), threading.Event()
        self._mover = place.mover(self._on_step, keep_ms=0)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        wait_until(
            lambda: self._stands.is_set() or not self._thread.is_alive(), "it stands still, or is over"
        )
        self.has_stopped = self._stands.is_set()

    def wake_up(self) -> None:
        self._may_go_on.set()
        self._thread.join()

    def _work(self) -> None:
        self._mover.move()
        self._mover.delete_moved()

    def _on_step(self, _name: str) -> None:
        self._seen += 1
        if self._seen == self._step:
            self._stands.set()
            self._may_go_on.wait(60)


def test_a_mover_that_stood_still_changes_nothing_when_it_wakes_up(place: OutboxPlace) -> None:
    for step in range(1, MOST_STEPS):
        place.commit(3)
        stopped = StoppedMover(place, step)
        if stopped.has_stopped:
            other = place.mover(keep_ms=0)
            place.move_all(other)
            other.delete_moved()
            place.commit(2)
            place.move_all(other)
            place.run_all()
        stopped.wake_up()
        place.move_all(place.mover(keep_ms=0))
        place.run_all()
        if not stopped.has_stopped:
            break

    assert step > 10
    place.assert_each_ran_once()


def test_two_movers_at_once_move_each_row_once(place: OutboxPlace) -> None:
    place.queues = ("q", "r", "s")
    movers = [place.mover(keep_ms=0) for _ in range(2)]
    is_over = threading.Event()

    def work(number: int) -> None:
        while not is_over.is_set() or movers[number].waiting().rows:
            movers[number].move()
            movers[number].delete_moved()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        place.commit(5)
        place.run_all()
    is_over.set()
    for thread in threads:
        thread.join()
    place.move_all(place.mover())
    place.run_all()

    place.assert_each_ran_once()


def test_rows_that_commit_out_of_the_order_of_their_ids_are_all_moved(server_place: OutboxPlace) -> None:
    place = server_place
    mover = place.mover()
    slow, never = next_id(), next_id()
    with place.engine.connect() as late, place.engine.connect() as rolled_back:
        place.write(late, slow)
        place.write(rolled_back, never)
        place.commit(3)
        place.move_all(mover)
        place.run_all()
        rolled_back.rollback()
        late.commit()
    place.committed.append(slow)
    place.commit(1)
    place.move_all(mover)
    place.run_all()

    place.assert_each_ran_once()


def test_what_is_not_committed_is_neither_moved_nor_waited_for(server_place: OutboxPlace) -> None:
    place = server_place
    with place.engine.connect() as open_one:
        place.write(open_one, next_id())

        place.commit(1)
        place.move_all(place.mover())
        place.run_all()

        place.assert_each_ran_once()


def test_a_redis_that_lost_its_newest_writes_gets_them_again(place: OutboxPlace, tmp_path: Path) -> None:
    mover, server = place.mover(), place.server
    place.commit(5)
    place.move_all(mover)
    backup = tmp_path / "backup"
    server.kill()
    shutil.copytree(server.directory / "appendonlydir", backup)
    server.start()
    later = place.commit(5)
    place.move_all(mover)
    wait_until(lambda: place.queue().counts().ready == 10, "all are there")
    server.kill()
    shutil.rmtree(server.directory / "appendonlydir")
    shutil.copytree(backup, server.directory / "appendonlydir")
    server.start()
    place.commit(2)

    place.move_all(mover)
    place.run_all()

    place.assert_each_ran_once()
    assert set(later) <= set(place.run)


def test_a_database_restored_from_a_backup_loses_nothing(place: OutboxPlace) -> None:
    place.commit(3)
    mover = place.mover(keep_ms=0)
    place.move_all(mover)
    place.run_all()
    with (
        place.engine.begin() as connection
    ):  # the backup knows nothing of the positions that were given since
        connection.execute(update(STATE).values(position=0))
    place.commit(3)

    place.move_all(mover)
    place.run_all()

    place.assert_each_ran_once()


def test_a_batch_that_arrives_late_is_turned_away(place: OutboxPlace) -> None:
    place.commit(3)
    mover = place.mover()
    rows = mover._rows
    rows.number_new()
    batch = rows.after("q", 0, 100, 1 << 20)
    messages = mover._readable(batch)
    place.move_all(mover)
    place.run_all()

    mover._send("q", messages, follows=0, ends=batch[-1].position)
    mover._send("q", messages[:1], follows=0, ends=batch[0].position)
    place.commit(1)
    place.move_all(mover)
    place.run_all()

    place.assert_each_ran_once()


def test_how_far_an_outbox_is_moved_is_not_forgotten_with_old_calls(place: OutboxPlace) -> None:
    place.commit(3)
    place.move_all(place.mover())
    place.run_all()

    queue = place.queue()
    queue.store.run(queue.calls.forget(-HOUR_MS, "0", "0"))
    place.move_all(place.mover())
    place.run_all()

    place.assert_each_ran_once()


def test_rows_are_deleted_when_redis_has_had_them_for_long_enough(place: OutboxPlace) -> None:
    place.commit(3)
    mover = place.mover(keep_ms=60_000)
    mover.move()
    place.time.ms += 1_000  # how exactly it is noted since when Redis has them
    mover.delete_moved()
    place.time.ms += 59_000
    mover.delete_moved()
    before = place.rows_left()
    place.time.ms += 2_000
    mover.delete_moved()

    assert (before, place.rows_left()) == (3, 0)


def test_what_cannot_be_read_is_left_aside_and_the_others_go_on(place: OutboxPlace) -> None:
    place.commit(2)
    with place.engine.begin() as connection:
        for call, queue in (
            (b"junk", "q"),
            (b"\x93\x01\x02\x03", "q"),
            (b"\x92\x02\x01", "q"),
            (b"", "no good"),
        ):
            values = {"queue": queue, "message": "m", "call": call, "created_at_ms": 1}
            connection.execute(insert(ROWS).values(**values))
    place.commit(2)

    mover = place.mover()
    place.move_all(mover)
    place.run_all()

    place.assert_each_ran_once()
    assert mover.waiting().bad == 4
    assert all(reason for *_, reason in place.open_rows().bad(10))


def test_a_quarantined_row_is_moved_when_it_is_mended(place: OutboxPlace) -> None:
    ids = place.commit(1)
    rows = place.open_rows()
    with place.engine.begin() as connection:
        connection.execute(update(ROWS).where(ROWS.c.message == ids[0]).values(position=BAD, reason="a slip"))

    assert rows.retry_bad() == 1
    place.move_all(place.mover())
    place.run_all()

    place.assert_each_ran_once()


def test_a_full_queue_takes_as_much_as_it_has_room_for_and_holds_up_no_other(place: OutboxPlace) -> None:
    place.queues = ("q", "r")
    place.queue("q").limit(3)
    place.commit(40)
    mover = place.mover()

    for _ in range(10):
        place.time.ms += 20_000
        mover.move()
    ready = {name: place.queue(name).counts().ready for name in place.queues}
    troubles = mover.troubles()
    for _ in range(100):
        place.run_all()
        place.time.ms += 20_000
        mover.move()
    place.run_all()

    assert ready == {"q": 3, "r": 20}
    assert "full" in troubles["q"]
    place.assert_each_ran_once()


def test_a_foreign_key_in_the_place_of_a_queue_holds_up_no_other(place: OutboxPlace) -> None:
    place.queues = ("q", "r")
    with place.server.client() as redis:
        redis.set("mqw:{q}:meta", "not ours")
    place.commit(6)
    mover = place.mover()

    place.move_all(mover)
    moved = place.queue("r").counts().ready
    with place.server.client() as redis:
        redis.delete("mqw:{q}:meta")
    place.move_all(mover)
    place.run_all()

    assert moved == 3
    place.assert_each_ran_once()


def test_a_delay_counts_from_when_the_row_was_written(place: OutboxPlace) -> None:
    place.commit(1, due=After(HOUR_MS))
    place.commit(1, due=After(HOUR_MS))
    with place.engine.begin() as connection:
        oldest = place.committed[0]
        older = ROWS.c.created_at_ms - HOUR_MS
        connection.execute(update(ROWS).where(ROWS.c.message == oldest).values(created_at_ms=older))

    place.move_all(place.mover())

    assert place.queue().find(place.committed[0]).state == "ready"
    assert place.queue().find(place.committed[1]).state == "delayed"


def test_tables_that_were_made_anew_are_another_outbox(place: OutboxPlace) -> None:
    place.commit(2)
    place.move_all(place.mover())
    place.run_all()
    with place.engine.begin() as connection:
        ROWS.metadata.drop_all(connection)
        ROWS.metadata.create_all(connection)
    place.commit(2)

    place.move_all(place.mover())
    place.run_all()

    place.assert_each_ran_once()


def test_a_database_without_the_tables_says_which_command_makes_them(place: OutboxPlace) -> None:
    ROWS.metadata.drop_all(place.engine)

    with pytest.raises(Exception, match="mqworker outbox create"):
        place.mover()
