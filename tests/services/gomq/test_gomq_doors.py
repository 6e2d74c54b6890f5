"""Who may come in: addresses, tokens, TLS, unix sockets; what stands in the way of a start; how it stops."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from mqworker.errors import MqworkerError
from mqworker_services.gateways.gomq.client import GomqClient
from mqworker_services.gateways.gomq.client_calls import GomqRefused
from tests.services.gomq.gomq_node import DEADLINE_S, Foreign, GomqNode
from tests.support.real_node import RealNode
from tests.support.real_server import RealServer, free_port

ROOT = Path(__file__).parents[3]


def type_serve(folder: Path, redis_url: str, *arguments: str) -> tuple[int, str]:
    """`mqworker serve gomq …`, which is expected to end by itself."""
    done = subprocess.run(
        [sys.executable, "-m", "mqworker", "serve", "gomq", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MQWORKER_REDIS_URL": redis_url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_other_machines_come_in_with_a_token_or_not_at_all(server: RealServer, tmp_path: Path) -> None:
    code, said = type_serve(tmp_path, server.url, "--listen", "0.0.0.0:10001")

    assert code == 78
    assert "listens at 0.0.0.0:10001, which other machines can reach; accepted" in said


def test_a_port_in_use_is_named(server: RealServer, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        code, said = type_serve(tmp_path, server.url, "--listen", place)

    assert code == 78
    assert f"cannot listen at {place}" in said


def test_without_grpcio_one_sentence_names_the_extra(server: RealServer, tmp_path: Path) -> None:
    (tmp_path / "grpc.py").write_text("raise ModuleNotFoundError(\"No module named 'grpc'\", name='grpc')")
    done = subprocess.run(
        [sys.executable, "-m", "mqworker", "serve", "gomq", "--listen", f"127.0.0.1:{free_port()}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "MQWORKER_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )

    assert done.returncode == 78
    assert "pip install 'mqworker[grpc]'" in done.stdout + done.stderr


def test_a_token_is_asked_of_everybody_but_a_probe(server: RealServer) -> None:
    with GomqNode(server.url, gateway_token="open-sesame") as node:  # noqa: S106 - a token of this test's
        answers = []
        for metadata in ([], [("authorization", "Bearer wrong")], [("authorization", "open-sesame")]):
            stranger = Foreign(node.target, metadata)
            with pytest.raises(grpc.RpcError) as caught:
                stranger.publish("TOKEN", b"x")
            answers.append(caught.value.code())
            stranger.close()
        with GomqClient(node.target, token="open-sesame") as client:  # noqa: S106
            client.publish("TOKEN", b"x")
        with GomqClient(node.target, token="x" * 1_000_000) as client, pytest.raises(MqworkerError):
            client.publish("TOKEN", b"x")

        assert answers == [grpc.StatusCode.UNAUTHENTICATED] * 3
        assert "sesame" not in node.log()
    with server.client() as raw:
        assert raw.llen("QUEUE_TOKEN") == 1


def test_tls_and_plain_do_not_mix(server: RealServer, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    tls = {"gateway_tls_certificate": certificate, "gateway_tls_key": key}
    trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
    with GomqNode(server.url, **tls) as node:
        with GomqClient(node.target, credentials=trusted) as client:
            client.publish("TLS", b"x")
        with GomqClient(node.target, timeout_s=2) as client, pytest.raises(MqworkerError):
            client.publish("TLS", b"y")

    with server.client() as raw:
        assert raw.llen("QUEUE_TLS") == 1


def test_clients_of_a_unix_socket_are_told_apart(server: RealServer, tmp_path: Path) -> None:
    path = tmp_path / "gomq.sock"
    node = RealNode(server.url, settings={"MQWORKER_GATEWAYS": f"gomq=unix:{path}"})
    with node, GomqClient(f"unix:{path}") as one, GomqClient(f"unix:{path}") as two, server.client() as raw:
        for client in (one, two):
            client.subscribe("UNIX", "unix-reader")
        peers = raw.smembers("PEERS_unix-reader")
        one.unsubscribe("UNIX", "unix-reader")

    assert len(peers) == 2
    assert all(peer.startswith(b"unix:") for peer in peers)


def test_one_peer_may_call_so_often_and_no_oftener(server: RealServer) -> None:
    with GomqNode(server.url, gateway_rate=5) as node, GomqClient(node.target) as client:
        with pytest.raises(GomqRefused) as caught:
            [client.observe("c") for _ in range(50)]

        assert caught.value.status == "RESOURCE_EXHAUSTED"
        assert "5 calls a second" in str(caught.value)


def test_a_stop_answers_what_is_under_way(server: RealServer) -> None:
    with GomqNode(server.url) as node, server.client() as raw:
        client = Foreign(node.target)
        client.publish("STOP", b"first")
        request = b"\x0a\x04STOP\x12\x01x"
        under_way = [client._method("Publish").future(request, 30) for _ in range(300)]

        code = node.stop()
        answered = sum(each.code() is grpc.StatusCode.OK for each in under_way)
        client.close()

        assert code == 0
        assert raw.llen("QUEUE_STOP") == 1 + answered


def make_certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
