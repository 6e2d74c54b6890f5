"""The RedisMQ verbs as server functions: they share one state with every other client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from mqworker.queues.work.queue import WorkQueue
from tests.support.command_line import CommandLine
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer


@pytest.fixture
def line(server: RealServer) -> Iterator[CommandLine]:
    line = CommandLine(server)
    assert line.type("functions", "install").exit_code == 0
    yield line
    line.type("functions", "remove")
    line.store.close()


@pytest.fixture
def queue(line: CommandLine) -> WorkQueue:
    return line.queue("q")


def test_functions_and_methods_see_the_same_elements(server: RealServer, queue: WorkQueue) -> None:
    with server.client() as client:
        assert client.fcall("mq_pop", 1, "q", 1) is None
        assert client.fcall("mq_ack", 1, "q", "1-1") is None
        assert client.fcall("mq_recover", 1, "q", 1, 0) is None
        first, second = client.fcall("mq_push", 1, "q", "a", "b")
        (third,) = queue.push(b"c")

        assert client.fcall("mq_inspect", 1, "q", 0, 9) == [
            [first, b"a"],
            [second, b"b"],
            [third.encode(), b"c"],
        ]
        assert client.fcall("mq_pop", 1, "q", 2) == [[first, b"a"], [second, b"b"]]
        assert [item.id.encode() for item in queue.inspect_pending(0, 9)] == [first, second]
        assert client.fcall("mq_recover", 1, "q", 1, 0) == [[first, b"a"]]
        assert client.fcall("mq_inspect", 1, "q", "pending", 1, 1)[0][4] == 2
        assert client.fcall("mq_ack", 1, "q", first, first, "9-9", second) == [first, second]
        assert queue.pop(9) == [(third, b"c")]
        assert client.fcall("mq_pop", 1, "q", 9) == []
        assert client.smembers("mqw:queues") == {b"q"}


@pytest.mark.usefixtures("line")
@pytest.mark.parametrize(
    "words",
    [
        ("mq_push", 1, "q"),
        ("mq_push", 0, "q"),
        ("mq_push", 1, "a b", "x"),
        ("mq_push", 1, "taken", "x"),
        ("mq_pop", 1, "q", "x"),
        ("mq_pop", 1, "q", 0),
        ("mq_recover", 1, "q", 1),
        ("mq_inspect", 1, "q", 0, 0),
        ("mq_inspect", 1, "q", 0, 1),
    ],
)
def test_what_does_not_fit_is_refused(server: RealServer, words: tuple[str, int]) -> None:
    with server.client() as client:
        client.set("taken", "by somebody")
        with pytest.raises(redis.ResponseError):
            client.fcall(*words)


def test_functions_are_listed_and_removed(line: CommandLine) -> None:
    assert "mq_ack, mq_inspect, mq_pop, mq_push, mq_recover" in line.type("functions", "list").output
    assert line.type("functions", "install").exit_code == 0
    assert "removed" in line.type("functions", "remove").output
    assert "none" in line.type("functions", "list").output
    assert "none" in line.type("functions", "remove").output


def test_functions_work_on_a_cluster() -> None:
    with RealCluster() as cluster:
        from click.testing import CliRunner  # noqa: PLC0415 - for this test alone

        from mqworker.cli.main import mqworker  # noqa: PLC0415 - as above

        result = CliRunner(env={"MQWORKER_REDIS_URL": cluster.url}).invoke(mqworker, ["functions", "install"])
        assert result.exit_code == 0, result.output
        from tests.support.messages import open_store  # noqa: PLC0415 - as above

        store = open_store(cluster.url)
        for name in ("one", "two", "three"):
            (reply,) = store.connection.execute([("FCALL", "mq_push", 1, name, "x")], name)
            assert isinstance(reply, list)
            assert len(WorkQueue(name, store).inspect(0, 9)) == 1
        store.close()
