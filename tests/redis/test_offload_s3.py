"""Large payloads in a bucket, over the wire: a local S3 (moto)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mqworker import S3, App, EncryptionKey, Keyring
from mqworker.errors import PayloadMissing, PayloadUnavailable
from mqworker.model.clock import ManualClock, SystemClock
from mqworker.settings import Settings
from mqworker.tasks.offload.sweep import Sweep
from tests.support.hand_worker import HandWorker
from tests.support.real_server import RealServer

pytest.importorskip("s3fs", reason="needs mqworker[s3]")
moto_server = pytest.importorskip("moto.server", reason="needs moto[server]")

KEYS = {"key": "test", "secret": "test"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(endpoint: str) -> S3:
    import s3fs  # type: ignore[import-untyped]  # noqa: PLC0415 - where it is installed

    files = s3fs.S3FileSystem(endpoint_url=endpoint, **KEYS, skip_instance_cache=True)
    name = f"b{os.urandom(4).hex()}"
    files.mkdir(name)
    return S3(f"{name}/payloads", above=1_000, grace=100, endpoint_url=endpoint, **KEYS)


def test_a_blob_goes_to_the_bucket_and_back(bucket: S3) -> None:
    bucket.write("mqw/q/a.m1.ff", b"abc")

    assert bucket.read("mqw/q/a.m1.ff") == b"abc"
    assert [name for name, _ in bucket.names("mqw")] == ["mqw/q/a.m1.ff"]
    assert list(bucket.names("other")) == []
    bucket.remove("mqw/q/a.m1.ff")
    bucket.remove("mqw/q/a.m1.ff")
    with pytest.raises(PayloadMissing):
        bucket.read("mqw/q/a.m1.ff")


def test_ten_megabytes_are_run_and_swept(bucket: S3, server: RealServer) -> None:
    keys = Keyring(EncryptionKey("k1", b"x" * 32))
    app = App("shop", settings=Settings(redis_url=server.url), keys=keys, offload=bucket)
    clock = ManualClock(SystemClock().now_ms())

    @app.task
    def double(data: bytes) -> bytes:
        return data + data

    data = os.urandom(10 * 1024 * 1024)
    job = double.enqueue(data)
    HandWorker(app).run_all()
    assert job.result(timeout=5) == data + data
    assert len(list(bucket.names("mqw"))) == 2

    removed = 0
    for _ in range(3):
        clock.advance(ms=101_000)
        removed += Sweep(app.connections.store, "mqw", bucket, app.work_queue, clock).run().removed

    assert removed == 1
    assert job.result(timeout=5) == data + data
    app.close()


def test_a_bucket_that_does_not_answer_is_away(server: RealServer) -> None:
    place = S3("nobody", above=10, endpoint_url="http://127.0.0.1:9", **KEYS)
    app = App("shop", settings=Settings(redis_url=server.url), offload=place)

    @app.task
    def size(data: bytes) -> int:
        return len(data)

    with pytest.raises(PayloadUnavailable, match="nobody"):
        size.enqueue(b"x" * 100)
    assert app.work_queue().counts().waiting == 0
    app.close()
