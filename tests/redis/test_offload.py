"""Large payloads elsewhere: at ordinary cost in Redis, removed when they are needed no more, never before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from mqworker import App, EncryptionKey, Files, Keyring, Retry, chain
from mqworker.errors import InvalidArgument, PayloadMissing, PayloadUnavailable
from mqworker.model.clock import ManualClock, SystemClock
from mqworker.model.names import QueueName
from mqworker.model.settlement import Ack, Bury, Park
from mqworker.queues.work.keys import workflow_key
from mqworker.queues.work.queue import WorkQueue
from mqworker.settings import Settings
from mqworker.tasks.offload.removal import BlobRemoval
from mqworker.tasks.offload.sweep import Sweep, Swept
from tests.support.deadline import wait_until
from tests.support.hand_broker import HandBroker
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

MEGABYTES_10 = 10 * 1024 * 1024
GRACE_S = 100.0
DAY_MS = 24 * 3600 * 1000


class Site:
    """An app whose payloads above 1,000 bytes are files, with hands and a sweep."""

    def __init__(self, app: App, directory: Path) -> None:
        self.app, self.directory = app, directory
        self.worker, self.broker = HandWorker(app), HandBroker(app)
        self.clock = ManualClock(SystemClock().now_ms())

        @app.task(retry=0)
        def size(data: bytes) -> int:
            return len(data)

        @app.task
        def double(data: bytes) -> bytes:
            return data + data

        @app.task(retry=Retry(max=1, backoff=1, cap=1))
        def fail(data: bytes) -> None:
            raise ValueError(len(data))

        self.size, self.double, self.fail = size, double, fail

    @property
    def blobs(self) -> list[str]:
        return sorted(path.name for path in self.directory.glob("mqw/*/*"))

    def sweep(self, later_s: float = 0) -> Swept:
        """Look, so many seconds after the last look."""
        self.clock.advance(ms=round(later_s * 1000))
        payloads, connections = self.app.connections.payloads, self.app.connections
        assert payloads is not None
        assert payloads.place is not None

        def queue_of(name: QueueName) -> WorkQueue:
            return connections.sender(name).work

        return Sweep(connections.store, "mqw", payloads.place, queue_of, self.clock).run()

    def sweep_all(self) -> int:
        """Looks that lie far enough apart; how many were removed."""
        return sum(self.sweep(GRACE_S + 1).removed for _ in range(3))


@pytest.fixture(params=["plain", "encrypted"])
def site(server: RealServer, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    app = App(
        "shop",
        settings=Settings(redis_url=server.url),
        keys=Keyring(EncryptionKey("k1", b"x" * 32)) if request.param == "encrypted" else None,
        offload=Files(tmp_path, above=1_000, grace=GRACE_S),
    )
    yield Site(app, tmp_path)
    app.close()


@pytest.fixture
def client(server: RealServer) -> Iterator[redis.Redis]:
    with server.client() as opened:
        yield opened


def test_ten_megabytes_cost_redis_what_any_message_costs(site: Site, client: redis.Redis) -> None:
    data = os.urandom(MEGABYTES_10)

    job = site.size.enqueue(data)

    (record,) = client.lrange("mqw:{default}:ready", 0, -1)
    assert len(record) <= 250
    site.worker.run_all()
    assert job.result(timeout=5) == MEGABYTES_10


def test_small_payloads_stay_where_they_are(site: Site) -> None:
    job = site.size.enqueue(b"x" * 900)
    site.worker.run_all()

    assert job.result(timeout=5) == 900
    assert site.blobs == []


def test_what_is_larger_than_the_place_accepts_is_refused(site: Site) -> None:
    payloads = site.app.connections.payloads
    assert payloads is not None
    assert payloads.place is not None
    payloads.place.most = 2_000

    with pytest.raises(InvalidArgument, match="2,"):
        site.size.enqueue(b"x" * 300_000)
    assert site.blobs == []


def test_the_arguments_go_when_the_end_is_stored(site: Site) -> None:
    payloads = site.app.connections.payloads
    assert payloads is not None
    assert payloads.place is not None
    removal = BlobRemoval(payloads.place, site.app.work_queue)
    site.size.enqueue(b"x" * 5_000)
    (delivery,) = site.app.work_queue().claim(1, lease_ms=60_000)
    settlement = site.worker.runner.run(delivery, "default")
    assert isinstance(settlement, Ack)

    removal.note("default", settlement)  # reported, but the ack was refused: somebody else has it
    removal.note("default", settlement)
    wait_until(removal._waiting.empty, "the thread looked")
    assert len(site.blobs) == 1

    site.app.work_queue().settle(settlement)
    removal.note("default", settlement)
    wait_until(lambda: not site.blobs, "the blob is removed")


def test_a_blob_is_kept_while_its_message_is_in_any_state(site: Site, client: redis.Redis) -> None:
    data = b"x" * 5_000
    site.size.using(delay=3600).enqueue(data)  # delayed
    site.size.using(queue="urgent", priority=5).enqueue(data)
    site.size.using(queue="waiting").enqueue(data)
    site.size.using(queue="held").enqueue(data)
    (held,) = site.app.work_queue("held").claim(1, lease_ms=DAY_MS)
    site.fail.using(queue="retried").enqueue(data)
    site.worker.run_all("retried")
    dead = site.size.using(queue="dead").enqueue(data)
    (buried,) = site.app.work_queue("dead").claim(1, lease_ms=DAY_MS)
    site.app.work_queue("dead").settle(Bury(buried, "for a test"))
    result = site.double.using(queue="result").enqueue(data)
    site.worker.run_all("result")
    before = site.blobs

    assert site.sweep_all() == 1  # the arguments of what was run

    assert len(site.blobs) == len(before) - 1 == 7
    assert site.worker.runner.run(held, "held").delivery is held
    assert result.result(timeout=5) == data + data
    assert dead.retry()
    site.worker.run_all("dead")
    assert dead.result(timeout=5) == 5_000
    client.delete("mqw:{result}:results", "mqw:{result}:results:old")
    assert site.sweep_all() >= 1
    assert not [name for name in site.blobs if name.startswith("r.")]


def test_what_nobody_refers_to_goes_after_two_looks_and_not_before(site: Site) -> None:
    job = site.size.enqueue(b"x" * 5_000)
    assert job.cancel()

    assert site.sweep().young == 1
    assert site.sweep(GRACE_S + 1).suspected == 1
    assert site.sweep(GRACE_S / 2).suspected == 1
    assert len(site.blobs) == 1
    assert site.sweep(GRACE_S).removed == 1
    assert site.blobs == []


def test_a_message_that_is_stored_between_two_looks_keeps_its_blob(site: Site) -> None:
    """The producer wrote the payload, and was stopped before it could enqueue."""
    sender = site.app.connections.sender(QueueName("default"))
    message = site.size.message((b"x" * 5_000,), {}, sender)
    assert site.sweep(GRACE_S + 1).suspected == 1

    sender.send(message)

    assert site.sweep(GRACE_S + 1).needed == 1
    site.worker.run_all()
    assert site.app.job(message.id).result(timeout=5) == 5_000


def test_a_file_left_by_a_killed_writer_goes_and_a_foreign_one_stays(site: Site) -> None:
    folder = site.directory / "mqw" / "default"
    folder.mkdir(parents=True)
    (folder / ".writing-abc").write_bytes(b"half")
    (folder / "notes.txt").write_bytes(b"mine")

    site.sweep_all()

    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_blobs_of_a_workflow_stay_until_it_is_forgotten(site: Site, client: redis.Redis) -> None:
    flow = chain(site.double.s(b"x" * 5_000), site.double.s(), site.size.s()).enqueue()
    for _ in range(6):
        site.broker.round()
        site.worker.run_all()
        site.sweep(GRACE_S + 1)
    assert flow.result(timeout=5) == 20_000

    assert site.sweep_all() == 0
    client.delete(workflow_key("mqw", flow.id), "mqw:{default}:results", "mqw:{default}:results:old")
    assert site.sweep_all() > 0
    assert site.blobs == []


def test_the_input_of_a_dead_step_outlives_its_workflow(site: Site, client: redis.Redis) -> None:
    flow = chain(site.double.s(b"x" * 5_000), site.fail.s()).enqueue()
    for _ in range(4):
        site.broker.round()
        site.worker.run_all()
        waiting = dict.fromkeys(client.hkeys("mqw:{default}:parcels"), 0)
        if waiting:  # its retry is due
            client.zadd("mqw:{default}:delayed", waiting, xx=True)
        site.app.work_queue().promote()
    assert flow.status() == "failed"
    client.delete(workflow_key("mqw", flow.id), "mqw:{default}:results", "mqw:{default}:results:old")

    site.sweep_all()

    assert [name for name in site.blobs if name.startswith("r.")]
    assert site.app.job(f"{flow.id}~1").retry()
    (settlement,) = site.worker.run_all()
    assert settlement.failure is not None  # type: ignore[union-attr]
    assert settlement.failure.message == "10000"  # type: ignore[union-attr]


def test_a_payload_that_is_gone_is_waited_for_and_then_the_message_is_buried(site: Site) -> None:
    site.size.enqueue(b"x" * 5_000)
    (blob,) = site.directory.glob("mqw/*/*")
    blob.unlink()
    (delivery,) = site.app.work_queue().claim(1, lease_ms=60_000)

    assert isinstance(site.worker.runner.run(delivery, "default"), Park)
    delivery.deliveries = 10
    settlement = site.worker.runner.run(delivery, "default")

    assert isinstance(settlement, Bury)
    assert settlement.reason == "payload_missing"


def test_a_payload_that_was_changed_is_not_run(site: Site) -> None:
    site.size.enqueue(b"x" * 5_000)
    (blob,) = site.directory.glob("mqw/*/*")
    blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    (delivery,) = site.app.work_queue().claim(1, lease_ms=60_000)
    delivery.deliveries = 10

    settlement = site.worker.runner.run(delivery, "default")

    assert isinstance(settlement, Bury)
    assert settlement.reason in {"payload_missing", "unverified"}


def test_while_the_place_is_away_nothing_is_enqueued_and_what_waits_goes_on_waiting(site: Site) -> None:
    job = site.size.enqueue(b"x" * 5_000)
    away = site.directory.with_name("away")
    site.directory.rename(away)
    site.directory.touch()

    with pytest.raises(PayloadUnavailable):
        site.size.enqueue(b"x" * 5_000)
    (delivery,) = site.app.work_queue().claim(1, lease_ms=60_000)
    settlement = site.worker.runner.run(delivery, "default")
    assert isinstance(settlement, Park)
    site.app.work_queue().settle(settlement)

    site.directory.unlink()
    away.rename(site.directory)
    wait_until(lambda: site.app.work_queue().promote() and site.worker.run_all(), "it is due again", 10)
    assert job.result(timeout=5) == 5_000


def test_who_does_not_know_the_place_is_told_so(site: Site, server: RealServer) -> None:
    job = site.double.enqueue(b"x" * 5_000)
    site.worker.run_all()
    stranger = App("other", settings=Settings(redis_url=server.url), keys=site.app.connections.keyring)

    with pytest.raises(PayloadMissing, match="MQWORKER_OFFLOAD"):
        stranger.job(job.id).result(timeout=5)
    stranger.close()
