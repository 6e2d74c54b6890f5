"""`mqworker status` of a cluster: what is there is shown while a part is away."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from mqworker.cli.main import mqworker
from mqworker.queues.work.keys import nodes_key, queues_key
from mqworker.queues.work.queue import WorkQueue
from tests.support.messages import a_message, open_store
from tests.support.real_cluster import RealCluster
from tests.support.real_server import RealServer


@pytest.fixture
def cluster() -> Iterator[RealCluster]:
    with RealCluster() as running:
        yield running


def status(cluster: RealCluster) -> tuple[int, dict[str, Any]]:
    result = CliRunner(env={"MQWORKER_REDIS_URL": cluster.url}).invoke(mqworker, ["status", "--json"])
    document: dict[str, Any] = json.loads(result.output)
    return result.exit_code, document


def a_queue_on(cluster: RealCluster, server: RealServer) -> str:
    return next(
        name
        for name in (f"q{number}" for number in itertools.count())
        if cluster.owner(f"{{{name}}}") is server
    )


def test_a_primary_that_is_away_takes_only_its_own_queues_with_it(cluster: RealCluster) -> None:
    registries = {cluster.owner(queues_key("mqw")), cluster.owner(nodes_key("mqw"))}
    away = next(server for server in cluster.servers[1:] if server not in registries or len(registries) > 1)
    here = cluster.servers[0]
    names = [a_queue_on(cluster, here), a_queue_on(cluster, away)]
    store = open_store(cluster.url)
    for name in names:
        WorkQueue(name, store).enqueue(a_message())
    store.close()
    before = status(cluster)

    away.close()
    exit_code, document = status(cluster)

    assert before[0] == 2  # no node beats
    assert exit_code != 3
    assert any("a part of the cluster is away" in reason for reason in document["verdict"]["reasons"])
    assert document["server"]["primaries"] == 3
    seen = {queue["name"]: queue["trouble"] for queue in document["queues"]}
    if names[0] in seen:  # unless the names themselves were away
        assert seen[names[0]] is None
        assert seen[names[1]]


def test_a_slot_that_moves_takes_only_its_own_queue_with_it(cluster: RealCluster) -> None:
    source, target = cluster.servers[0], cluster.servers[1]
    moving, still = a_queue_on(cluster, source), a_queue_on(cluster, target)
    store = open_store(cluster.url)
    for name in (moving, still):
        WorkQueue(name, store).enqueue(a_message())
    store.close()

    key = f"mqw:{{{moving}}}:meta"
    cluster.begin_move(key, source, target)
    cluster.move_key(key, source, target)
    exit_code, document = status(cluster)

    assert exit_code in {1, 2}
    seen = {queue["name"]: queue["trouble"] for queue in document["queues"]}
    assert set(seen) == {moving, still}
    assert seen[still] is None


def test_nobody_who_answers_is_no_redis(cluster: RealCluster) -> None:
    cluster.close()

    exit_code, document = status(cluster)

    assert (exit_code, document["verdict"]["health"]) == (3, "no_redis")
