"""Certificates for tests, made by openssl: an authority, and who it signed."""

from __future__ import annotations

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for this machine."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        subject = ("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")
        _openssl("req", "-x509", *_KEY, *subject, "-keyout", self._key, "-out", self.certificate)

    def sign(self, common_name: str) -> Signed:
        """A certificate for 127.0.0.1 with that common name."""
        certificate, key = self._folder / f"{common_name}.pem", self._folder / f"{common_name}.key"
        _openssl(
            *("req", "-x509", *_KEY, "-subj", f"/CN={common_name}"),
            *("-CA", self.certificate, "-CAkey", self._key),
            *("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"),
            *("-keyout", key, "-out", certificate),
        )
        return Signed(certificate, key)

    def client_context(self, own: Signed | None = None) -> ssl.SSLContext:
        """What trusts this authority, and shows a certificate if it has one."""
        context = ssl.create_default_context(cafile=self.certificate)
        if own is not None:
            context.load_cert_chain(own.certificate, own.key)
        return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
