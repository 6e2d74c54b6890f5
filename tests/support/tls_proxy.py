"""TLS in front of a plain server: the wheel's server is built without. Certificates come from `openssl`."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import subprocess
import threading
from pathlib import Path

CA_EXTENSIONS = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")


def make_authority(directory: Path, name: str) -> Path:
    """A self-signed authority; the path of its certificate, its key beside it with the suffix .key."""
    certificate = directory / f"{name}.pem"
    extensions = [part for extension in CA_EXTENSIONS for part in ("-addext", extension)]
    _openssl(
        *(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ),
        *(
            "-subj",
            f"/CN={name}",
            "-keyout",
            f"{certificate}.key",
            "-out",
            str(certificate),
            "-config",
            "/dev/null",
        ),
        *extensions,
    )
    return certificate


def make_certificate(directory: Path, authority: Path, host: str) -> Path:
    """A certificate for `host`, with its key in the same file."""
    request, certificate, rules = (directory / f"server.{suffix}" for suffix in ("csr", "pem", "ext"))
    rules.write_text(f"subjectAltName=DNS:{host}\nauthorityKeyIdentifier=keyid\n")
    _openssl(
        *(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            f"/CN={host}",
        ),
        *("-keyout", f"{certificate}.key", "-out", str(request), "-config", "/dev/null"),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-CA", str(authority), "-CAkey", f"{authority}.key"),
        *("-CAcreateserial", "-days", "2", "-extfile", str(rules), "-out", str(certificate)),
    )
    return certificate


class TlsProxy:
    """Ends TLS on a loopback port and passes the bytes on to `backend_port`."""

    def __init__(self, certificate: Path, backend_port: int) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, f"{certificate}.key")
        self._backend_port = backend_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # A refused handshake is what some tests are about, and a reset is how it looks from here.
        with contextlib.suppress(OSError), client:
            client.settimeout(10)
            with (
                self._context.wrap_socket(client, server_side=True) as secure,
                socket.create_connection(("127.0.0.1", self._backend_port)) as backend,
            ):
                _pass_on(secure, backend)


def _pass_on(secure: ssl.SSLSocket, backend: socket.socket) -> None:
    """Both directions in one thread: two must not use one TLS connection at the same time."""
    while True:
        readable = [secure] if secure.pending() else select.select([secure, backend], [], [])[0]
        for source, sink in ((secure, backend), (backend, secure)):
            if source in readable:
                data = source.recv(65536)
                if not data:
                    return
                sink.sendall(data)


def _openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
