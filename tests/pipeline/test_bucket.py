"""A lake in a bucket: moto's S3 server on loopback, a process of its own."""

from __future__ import annotations

import importlib.util
import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from mqworker.cli.main import mqworker
from mqworker.events import open_event_streams
from mqworker.settings import Settings
from mqworker_services.pipeline.archive import ArchivePlan, Archiver, archive_and_follow, archive_once
from mqworker_services.pipeline.compaction import compact, expire
from mqworker_services.pipeline.engine import Engine
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.storage import LakeInUse, StorageUnavailable
from mqworker_services.pipeline.table import LakeTable
from mqworker_services.pipeline.verify import verify
from tests.pipeline.event_factory import append_block_at, append_events
from tests.pipeline.lake_content import keys_of, rows_of
from tests.support.bucket_server import BUCKET, CREDENTIALS, BucketServer
from tests.support.deadline import wait_until
from tests.support.fault_proxy import FaultProxy
from tests.support.real_server import RealServer, free_port

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("moto") is None, reason="no S3 server: pip install 'moto[s3]' flask flask-cors"
)
MIDNIGHT_MS = 1_790_035_200_000


@pytest.fixture(scope="module")
def bucket() -> Iterator[BucketServer]:
    with BucketServer() as running:
        yield running


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


def lake_at(endpoint: str, name: str) -> Lake:
    return Lake.at(f"s3://{BUCKET}/{name}", {"endpoint": endpoint, "region": "us-east-1"})


def nothing(_batch: int, _events: int) -> None:
    """Nobody listens."""


def test_a_bucket_holds_a_lake_from_archive_to_retention(
    engine: Engine, settings: Settings, server: RealServer, bucket: BucketServer
) -> None:
    lake = lake_at(bucket.endpoint, "whole/life")
    with server.client() as client:
        for number in range(24):
            append_block_at(client, "mail", MIDNIGHT_MS - 12 + number, [f"m{number}"])
        archive_once(engine, ArchivePlan(settings, lake, is_trimming=True, max_events_per_batch=4), nothing)
        assert client.xlen("mqw:{mail}:events") == 0
    before = keys_of(lake)

    assert len(before) == 24
    assert len(compact(engine, lake, "2026-09-23")) == 2
    assert keys_of(lake) == before
    assert verify(engine, lake).problems() == []
    assert {file.date for file in expire(engine, lake, "2026-09-22")} == {"2026-09-21"}
    assert (verify(engine, lake).problems(), verify(engine, lake).rows) == ([], 12)


def test_a_stale_archiver_is_refused_by_a_bucket_too(
    engine: Engine, settings: Settings, server: RealServer, bucket: BucketServer
) -> None:
    lake = lake_at(bucket.endpoint, "stale")
    with server.client() as client, open_event_streams(settings) as streams:
        made = append_events(client, "mail", 100)
        plan = ArchivePlan(settings, lake)

        def meanwhile(_batch: int, _events: int) -> None:
            Archiver(engine, plan, streams).archive_present(nothing)

        with pytest.raises(LakeInUse, match="it committed batch 0 first"):
            Archiver(engine, plan, streams).archive_present(meanwhile)
    assert rows_of(lake).num_rows == made
    assert verify(engine, lake).problems() == []


def test_answers_that_are_lost_on_the_way_neither_lose_nor_double_a_batch(
    engine: Engine, settings: Settings, server: RealServer, bucket: BucketServer
) -> None:
    """Every ninth answer is lost, and with it the connection: what was asked has happened.

    Whoever gives up after some tries says so, and is run again.
    """
    with FaultProxy(bucket.port, lose_every=9) as proxy, server.client() as client:
        lake = lake_at(proxy.url.replace("redis", "http"), "lossy")
        made = append_events(client, "mail", 200, per_block=10)
        plan = ArchivePlan(settings, lake, is_trimming=True, max_events_per_batch=50)
        wait_until(lambda: _is_archived(engine, plan), "everything is archived", 300.0)
        assert proxy.lost > 5
    lake = lake_at(bucket.endpoint, "lossy")
    verdict = verify(engine, lake)
    assert (verdict.problems(), verdict.rows, verdict.distinct) == ([], made, made)


def _is_archived(engine: Engine, plan: ArchivePlan) -> bool:
    try:
        archive_once(engine, plan, nothing)
    except StorageUnavailable:
        return False
    return True


def test_a_storage_that_is_away_is_told_once_and_waited_for(
    engine: Engine, settings: Settings, server: RealServer, bucket: BucketServer
) -> None:
    port = free_port()
    warnings: list[str] = []
    is_over = threading.Event()
    lake = lake_at(f"http://127.0.0.1:{port}", "away")

    def report(_batch: int, _events: int) -> None:
        if is_over.is_set():
            raise KeyboardInterrupt

    plan = ArchivePlan(settings, lake, is_trimming=True, interval_s=0.1, warn=warnings.append)
    with server.client() as client:
        made = append_events(client, "mail", 100)
        with pytest.raises(StorageUnavailable, match="the storage s3://lakes/away does not do as asked"):
            archive_once(engine, plan, nothing)
        assert client.xlen("mqw:{mail}:events") == 2
        archiver = threading.Thread(target=archive_and_follow, args=(engine, plan, report))
        archiver.start()
        wait_until(lambda: bool(warnings), "the archiver says that the storage is away", 120.0)
        with _Forwarder(port, bucket.port):
            wait_until(lambda: client.xlen("mqw:{mail}:events") == 0, "the archiver goes on", 120.0)
            is_over.set()
            append_events(client, "mail", 10, first=100)  # not committed: interrupted
            archiver.join(120.0)
            assert not archiver.is_alive()
            assert len(warnings) == 1
            assert (verify(engine, lake).problems(), verify(engine, lake).rows) == ([], made)


class _Forwarder:
    """Lets a port that answered nobody answer."""

    def __init__(self, port: int, target: int) -> None:
        self._proxy = FaultProxy(target)
        self._proxy._listener.close()
        self._proxy._listener = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> None:
        self._proxy.__enter__()

    def __exit__(self, *arguments: object) -> None:
        self._proxy.__exit__(None, None, None)


def test_the_commands_take_a_bucket(settings: Settings, server: RealServer, bucket: BucketServer) -> None:
    with server.client() as client:
        append_events(client, "mail", 100)

    def run(command: str, *arguments: str) -> Result:
        place = ["--lake", f"s3a://{BUCKET}/commands", "--storage", f"endpoint={bucket.endpoint}"]
        shared = ["pipeline", command, "--redis-url", settings.redis_url or "", *place]
        return CliRunner().invoke(mqworker, [*shared, *arguments])

    archived, verified, reported = run("archive", "--once"), run("verify"), run("report")

    assert archived.stdout == f"200 events archived in s3://{BUCKET}/commands\n"
    assert verified.stdout == "200 events in 2 blocks: none missing, none twice\n"
    assert "report" in reported.stdout
    wrong = run("verify", "--storage", "key=secret")
    assert (wrong.exit_code, "accepted is NAME=VALUE" in wrong.stderr) == (2, True)
    missing = CliRunner().invoke(
        mqworker,
        ["pipeline", "verify", "--lake", "s3://nosuchbucket/x", "--storage", f"endpoint={bucket.endpoint}"],
    )
    assert (missing.exit_code, "Traceback" in missing.stderr) == (1, False)
    assert LakeTable.open(lake_at(bucket.endpoint, "commands")).batch == 0
