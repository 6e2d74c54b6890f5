"""Which servers may hold queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from mqworker.errors import ConfigurationError
from mqworker.store.command import Command, Reply
from mqworker.store.server_check import ServerFacts, check_server, parse_facts, refusal

VALKEY = b"# Server\r\nserver_name:valkey\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n"
REDIS = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"
MEMORY = b"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n"


class Primaries:
    """Answers INFO for several servers."""

    def __init__(self, replies_by_server: Mapping[str, list[Reply]]) -> None:
        self._replies_by_server = replies_by_server

    def each_primary(self, commands: Sequence[Command]) -> Mapping[str, list[Reply]]:
        assert all(command[0] == "INFO" for command in commands)
        return self._replies_by_server


def facts(
    product: str = "Redis", version: tuple[int, ...] = (7, 0, 0), policy: str = "noeviction"
) -> ServerFacts:
    return ServerFacts(product, version, policy, is_append_only=True, is_cluster=False)


def test_valkey_is_told_from_the_redis_version_that_it_also_names() -> None:
    found = parse_facts([VALKEY, MEMORY, b"aof_enabled:1\r\n", b"cluster_enabled:0\r\n"])

    assert found == ServerFacts("Valkey", (9, 1, 2), "noeviction", is_append_only=True, is_cluster=False)
    assert found.version_text == "9.1.2"


def test_redis_is_parsed_and_a_preview_counts_by_its_numbers() -> None:
    assert parse_facts([REDIS, MEMORY]).version == (7, 0, 15)
    assert parse_facts([b"redis_version:8.0-rc1"]).version == (8, 0)
    assert not parse_facts([REDIS, MEMORY, b"aof_enabled:0"]).is_append_only


@pytest.mark.parametrize(
    "accepted", [facts(), facts(version=(8, 2, 1)), facts("Valkey", (7, 2, 0)), facts("Valkey", (9, 1))]
)
def test_recent_servers_without_eviction_are_accepted(accepted: ServerFacts) -> None:
    assert refusal(accepted) is None


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (facts(version=(6, 2, 14)), "Redis 6.2.14"),
        (facts("Valkey", (7, 1)), "at least Redis 7.0 or Valkey 7.2"),
        (facts(version=(0,)), "at least"),
        (facts(policy="allkeys-lru"), "allkeys-lru"),
        (facts(policy="volatile-ttl"), "noeviction"),
    ],
)
def test_old_or_forgetful_servers_are_refused_with_a_reason(refused: ServerFacts, reason: str) -> None:
    assert reason in (refusal(refused) or "")


def test_one_unfit_primary_of_a_cluster_is_named() -> None:
    primaries = Primaries(
        {"node a": [VALKEY, MEMORY], "node b": [VALKEY, b"maxmemory_policy:allkeys-random\r\n"]}
    )

    with pytest.raises(ConfigurationError, match=r"node b.*allkeys-random"):
        check_server(primaries)


def test_several_primaries_are_as_good_as_the_weakest() -> None:
    primaries = Primaries({"a": [VALKEY, MEMORY, b"aof_enabled:1"], "b": [REDIS, MEMORY, b"aof_enabled:0"]})

    found = check_server(primaries)

    assert (found.product, found.version, found.is_append_only) == ("Redis", (7, 0, 15), False)
