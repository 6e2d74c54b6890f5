"""The sync connection when the server fails: every fault is a real one."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from mqworker.errors import StoreFull, StoreRefused, StoreUnavailable
from mqworker.store.command import Command, ReplyError
from mqworker.store.link.connection import Connection
from mqworker.store.link.pool import IDLE_AFTER_S
from mqworker.store.server_check import check_server
from tests.support.deadline import wait_until
from tests.support.real_server import RealServer

Connect = Callable[[str], Connection]

SCRIPT = "return redis.call('INCR', KEYS[1])"
INCREMENT: Command = ("INCR", "n")


def loaded_script(connection: Connection) -> Command:
    sha = connection.execute([("SCRIPT", "LOAD", SCRIPT)], None)[0]
    assert isinstance(sha, bytes)
    return ("EVALSHA", sha, 1, "n")


def code_of(connection: Connection, command: Command) -> str:
    reply = connection.execute([command], "n")[0]
    assert isinstance(reply, ReplyError)
    return reply.code


def is_up(connection: Connection) -> bool:
    try:
        connection.execute([("PING",)], None)
    except StoreUnavailable:
        return False
    return True


def test_flushed_script_is_reported_as_an_answer(connection: Connection) -> None:
    script = loaded_script(connection)
    assert connection.execute([script], "n") == [1]

    connection.execute([("SCRIPT", "FLUSH")], None)

    assert code_of(connection, script) == "NOSCRIPT"


def test_idle_connection_survives_a_restart_without_a_failed_call(connect: Connect) -> None:
    with RealServer() as server:
        connection = connect(server.url)
        script = loaded_script(connection)

        server.kill()
        server.start()

        assert code_of(connection, script) == "NOSCRIPT"


def test_killed_server_is_unavailable_and_works_again_when_it_is_back(connect: Connect) -> None:
    with RealServer(aof="always") as server:
        connection = connect(server.url)
        connection.execute([INCREMENT], "n")
        server.kill()

        assert not is_up(connection)
        server.start()

        assert connection.execute([INCREMENT], "n") == [2]


def test_link_killed_by_the_server_while_idle_costs_no_call(
    server: RealServer, connection: Connection
) -> None:
    connection.execute([INCREMENT], "n")

    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    time.sleep(IDLE_AFTER_S)

    assert connection.execute([INCREMENT], "n") == [2]


def test_link_that_breaks_under_a_call_may_have_executed_it(connection: Connection) -> None:
    connection.execute([INCREMENT], "n")

    with pytest.raises(StoreUnavailable, match="closed the connection") as raised:
        connection.execute([INCREMENT, ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"), INCREMENT], "n")

    assert raised.value.maybe_executed
    assert connection.execute([("GET", "n")], "n") == [b"2"]


def test_frozen_server_is_noticed_by_the_read_time_out_and_nothing_is_sent_twice(connect: Connect) -> None:
    with RealServer() as server:
        connection = connect(server.url)
        connection.execute([INCREMENT], "n")
        server.pause()

        with pytest.raises(StoreUnavailable, match="in time") as raised:
            connection.execute([INCREMENT], "n")
        server.resume()

        assert raised.value.maybe_executed
        with server.client() as client:
            wait_until(lambda: client.get("n") == b"2", "the late execution")
        assert connection.execute([INCREMENT], "n") == [3]


def test_frozen_server_is_noticed_by_a_new_connection_too(connect: Connect) -> None:
    with RealServer() as server:
        server.pause()

        with pytest.raises(StoreUnavailable) as raised:
            connect(server.tcp_url).execute([INCREMENT], "n")
        server.resume()

        assert not raised.value.maybe_executed


def test_loading_server_is_unavailable_until_it_has_loaded(connect: Connect) -> None:
    slow = ("--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
    with RealServer(*slow) as server:
        with server.client() as client:
            client.execute_command("DEBUG", "POPULATE", 8000)
            client.save()
        server.kill()
        server.start(wait=False)
        connection = connect(server.url)
        troubles: list[StoreUnavailable] = []

        def says_loading() -> bool:
            with pytest.raises(StoreUnavailable) as raised:
                connection.execute([INCREMENT, INCREMENT], "n")
            troubles.append(raised.value)
            return "loading its data" in str(raised.value)

        wait_until(says_loading, "LOADING")
        with server.client() as client:
            client.config_set("key-load-delay", 0)
        wait_until(lambda: is_up(connection), "the end of loading")

        assert not any(trouble.maybe_executed for trouble in troubles)
        assert connection.execute([INCREMENT], "n") == [1]


def test_demoted_primary_is_left_at_once(connect: Connect) -> None:
    with RealServer() as server:
        connection = connect(server.url)
        connection.execute([("EVAL", "return 1", 0)], None)  # it took a script before
        before = connection.execute([("CLIENT", "ID")], None)
        with server.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")

            with pytest.raises(StoreUnavailable, match="replica") as raised:
                connection.execute([("EVAL", SCRIPT, 1, "n")], "n")
            client.execute_command("REPLICAOF", "NO", "ONE")

        assert not raised.value.maybe_executed
        assert connection.execute([INCREMENT], "n") == [1]
        assert connection.execute([("CLIENT", "ID")], None) != before


def test_full_server_refuses_what_adds_and_takes_what_removes(connect: Connect) -> None:
    with RealServer() as server:
        connection = connect(server.url)
        connection.execute([("SET", "n", 1)], "n")
        connection.execute([("CONFIG", "SET", "maxmemory", 1)], None)

        with pytest.raises(StoreFull, match="maxmemory"):
            connection.execute([INCREMENT], "n")
        with pytest.raises(StoreFull):
            connection.execute([("EVAL", f"#!lua\n{SCRIPT}", 1, "n")], "n")

        assert connection.execute([("DEL", "n")], "n") == [1]


def test_busy_server_is_unavailable(connect: Connect) -> None:
    with RealServer("--busy-reply-threshold", "50") as server:
        endless, other = connect(server.url), connect(server.url)
        other.execute([("PING",)], None)
        with pytest.raises(StoreUnavailable, match="in time"):
            endless.execute([("EVAL", "while true do end", 0)], None)

        with pytest.raises(StoreUnavailable, match="SCRIPT KILL") as raised:
            other.execute([INCREMENT], "n")

        assert not raised.value.maybe_executed
        assert other.execute([("SCRIPT", "KILL")], None) == [b"OK"]


def test_too_few_replicas_make_writes_unavailable(connect: Connect) -> None:
    with (
        RealServer("--min-replicas-to-write", "1") as server,
        pytest.raises(StoreUnavailable, match="replicas"),
    ):
        connect(server.url).execute([INCREMENT], "n")


def test_server_without_room_for_a_client_is_unavailable(connect: Connect) -> None:
    with RealServer("--maxclients", "1") as server, server.client() as only_one:
        only_one.ping()

        # The server says why and hangs up; whether its words or the broken pipe come first is chance.
        with pytest.raises(StoreUnavailable) as raised:
            connect(server.url).execute([INCREMENT], "n")

        assert not raised.value.maybe_executed
        assert only_one.get("n") is None


def test_wrong_password_and_missing_password_are_refused_without_naming_it(connect: Connect) -> None:
    with RealServer() as server:
        with server.client() as client:
            client.config_set("requirepass", "right")
        place = f"127.0.0.1:{server.port}"

        with pytest.raises(StoreRefused, match="redis_url") as wrong:
            connect(f"redis://:wr0ng@{place}").execute([INCREMENT], "n")
        with pytest.raises(StoreRefused, match="redis_url"):
            connect(f"redis://{place}").execute([INCREMENT], "n")

        assert "wr0ng" not in str(wrong.value)
        assert connect(f"redis://:right@{place}").execute([INCREMENT], "n") == [1]


def test_user_confined_to_our_keys_can_do_all_we_need_and_nothing_else(
    server: RealServer, connect: Connect
) -> None:
    rules = ["on", ">s3cret", "~mqw:*", "&mqw:*", "+@all", "-@dangerous", "+info"]
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "worker", *rules)
    connection = connect(f"unix://worker:s3cret@{server.socket_path}")

    subscription = connection.subscribe(["mqw:wake"])
    connection.execute([("EVAL", SCRIPT, 1, "mqw:n"), ("SPUBLISH", "mqw:wake", "")], "mqw:n")

    assert subscription.get(5) == ("mqw:wake", b"")
    assert check_server(connection).product == "Valkey"
    for forbidden in (("INCR", "other"), ("FLUSHALL",), ("EVAL", SCRIPT, 1, "other")):
        with pytest.raises(StoreRefused, match=r"ACL|permission") as raised:
            connection.execute([forbidden], None)
        assert "s3cret" not in str(raised.value)
    subscription.close()
