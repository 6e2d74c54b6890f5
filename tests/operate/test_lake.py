"""The lake, for people: what Redis has forgotten is found there, and what is wrong with it is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mqworker.errors import InvalidArgument, MqworkerError
from mqworker.model.envelope import encode_call
from mqworker.model.names import TaskName
from mqworker.model.settlement import Ack, Run
from mqworker.operate.documents import job_document, search_document
from mqworker.operate.job_filter import parse_filter
from mqworker.operate.job_view import read_job
from mqworker.operate.lake import LakeUnavailable, search_with_lake
from mqworker.operate.search import MOST_LOOKED_AT
from mqworker.operate.system import System
from tests.support.messages import a_message

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'mqworker[lake]'")

from mqworker_services.pipeline.archive import ArchivePlan, archive_once
from mqworker_services.pipeline.engine import LocalEngine
from mqworker_services.pipeline.lake import Lake


def run_to_their_end(
    system: System, count: int, *, queue: str = "mail", task: str = "shop.charge"
) -> list[str]:
    messages = [a_message(encode_call([], {}), task=TaskName(task)) for _ in range(count)]
    line = system.open_queue(queue)
    line.enqueue(*messages)
    line.settle(*[Ack(each, run=Run("worker:0", "node-1", 5, run_ms=3.0)) for each in line.claim(count)])
    return [message.id for message in messages]


@pytest.fixture
def archived(system: System, tmp_path: Path) -> System:
    """A system whose events go to a lake, and which has forgotten all else by then."""
    place = str(tmp_path / "lake")
    return System(replace(system.settings, lake=place), system.store)


def archive(system: System) -> None:
    plan = ArchivePlan(system.settings, Lake.at(str(system.settings.lake)))
    archive_once(LocalEngine(), plan, lambda _batch, _events: None)


def forget(system: System) -> None:
    system.store.send([("FLUSHALL",)], None)


def test_a_job_that_ended_long_ago_is_shown_from_the_lake_and_marked_so(archived: System) -> None:
    first, *_ = run_to_their_end(archived, 3)
    archive(archived)
    forget(archived)

    job = read_job(archived, first, None)

    assert (job.source, job.task, job.place, job.trace.queue) == ("lake", "shop.charge", "settled", "mail")
    assert job.ended is not None
    assert job.ended.event == "succeeded"
    (attempt,) = job.attempts
    assert (attempt.number, attempt.outcome, attempt.run_ms, attempt.worker) == (
        1,
        "succeeded",
        3,
        "worker:0",
    )
    assert any("the lake knows" in sentence for sentence in job.plain_reasons)
    assert job_document(job, has_arguments=True)["source"] == "lake"


def test_what_ended_is_sought_in_the_events_and_then_in_the_lake(archived: System) -> None:
    old = run_to_their_end(archived, 30) + run_to_their_end(archived, 5, queue="other", task="shop.other")
    archive(archived)
    forget(archived)
    new = run_to_their_end(archived, 2)
    wanted = parse_filter("state:succeeded task:charge")

    here = search_with_lake(archived, wanted, budget=MOST_LOOKED_AT)
    there, cursor = [], here.cursor
    while cursor is not None:
        found = search_with_lake(archived, wanted, cursor, most=12, budget=MOST_LOOKED_AT)
        assert found.source == "lake"
        there += [job.id for job in found.jobs]
        cursor = found.cursor

    assert sorted(job.id for job in here.jobs) == sorted(new)
    assert sorted(there) == sorted(old[:30])
    assert search_document(here)["source"] == "redis"
    by_id = search_with_lake(archived, parse_filter(f"state:succeeded id:{old[-1]}"), "lake:0:0", budget=1)
    assert [(job.id, job.queue) for job in by_id.jobs] == [(old[-1], "other")]


def test_what_the_lake_cannot_know_is_not_asked_of_it(archived: System) -> None:
    run_to_their_end(archived, 1)
    words = ("state:succeeded args.tenant:acme", "state:succeeded tag:import", "state:ready", "")

    cursors = [search_with_lake(archived, parse_filter(each), budget=100).cursor for each in words]

    assert cursors == [None, None, None, None]


@pytest.mark.parametrize("place", ["nowhere", "ftp://example/lake"])
def test_a_lake_that_cannot_be_read_is_told_in_a_sentence(system: System, tmp_path: Path, place: str) -> None:
    chosen = place if "://" in place else str(tmp_path / place)
    lost = System(replace(system.settings, lake=chosen), system.store)

    with pytest.raises(LakeUnavailable, match="the lake cannot be read: "):
        read_job(lost, "01J", None)


def test_without_a_lake_nothing_changes(system: System) -> None:
    with pytest.raises(MqworkerError, match="no message 01J in any queue"):
        read_job(system, "01J", None)
    with pytest.raises(InvalidArgument, match="cursor is"):
        search_with_lake(system, parse_filter("state:succeeded"), "lake:0:0", budget=1)


@pytest.mark.parametrize("cursor", ["lake:", "lake:x:1", "lake:1", "lake:-1:0"])
def test_a_cursor_that_nobody_gave_is_refused(archived: System, cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="cursor is"):
        search_with_lake(archived, parse_filter("state:succeeded"), cursor, budget=1)
