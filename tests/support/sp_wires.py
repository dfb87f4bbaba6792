"""SP transports with their URLs in requite and in nng, and certificates for those with TLS.

A test selects a transport (`Wire`) and gets a `Place` on it. One side listens there, on a free port
or an unused path. The place with the actual port gives the URL that the other side dials.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
import trustme

HTTP_PATH: Final = "/rpc"
_numbers = count()


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: an authority and a valid certificate of it for localhost with its key, an
    untrusted authority, and a certificate for another host name with its key."""

    ca: Path
    certificate: Path
    key: Path
    other_ca: Path
    wrong_name: Path
    wrong_name_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Issue the certificates and write them into a folder."""
    authority, stranger = trustme.CA(), trustme.CA()
    good = authority.issue_cert("localhost", "127.0.0.1", "::1")
    elsewhere = authority.issue_cert("elsewhere.example")
    files = Certificates(*(folder / name for name in ("ca", "crt", "key", "other", "elf", "elk")))
    authority.cert_pem.write_to_path(files.ca)
    stranger.cert_pem.write_to_path(files.other_ca)
    for certificate, path, key in (
        (good, files.certificate, files.key),
        (elsewhere, files.wrong_name, files.wrong_name_key),
    ):
        path.write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
        certificate.private_key_pem.write_to_path(key)
    return files


@dataclass(frozen=True)
class Wire:
    """A transport. `ours` is its scheme in requite's URLs, `theirs` in nng's."""

    name: str
    ours: str
    theirs: str
    host: str = "127.0.0.1"
    path: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether the transport uses TLS."""
        return self.ours in ("sp+tls", "sp+wss")

    def __str__(self) -> str:
        return self.name


TCP: Final = Wire("tcp", "sp+tcp", "tcp")
TCP6: Final = Wire("tcp6", "sp+tcp", "tcp", host="[::1]")
IPC: Final = Wire("ipc", "sp+ipc", "ipc", host="")
TLS: Final = Wire("tls", "sp+tls", "tls+tcp")
WS: Final = Wire("ws", "sp+ws", "ws", path=HTTP_PATH)
WSS: Final = Wire("wss", "sp+wss", "wss", path=HTTP_PATH)
WIRES: Final = (TCP, TCP6, IPC, TLS, WS, WSS)


@dataclass(frozen=True)
class Place:
    """An address to listen at or dial: a port (0: any free one), or the path of a socket."""

    wire: Wire
    certificates: Certificates
    port: int = 0
    file: str = ""

    def at(self, port: int) -> Place:
        """Return a copy with this port."""
        return Place(self.wire, self.certificates, port, self.file)

    def as_told(self, url: str) -> Place:
        """Return a copy with the port in a listener's URL; the place itself if it has none."""
        found = re.search(r":(\d+)(?:[/?]|$)", url)
        return self.at(int(found.group(1))) if found else self

    @property
    def nng(self) -> str:
        """The URL for nng, to listen at or dial."""
        return f"{self.wire.theirs}://{self._body}"

    def listening(self, **options: str) -> str:
        """Return the URL with which requite listens; `options` are its query parameters."""
        if self.wire.is_secure:
            files = self.certificates
            options = {"certificate": str(files.certificate), "key": str(files.key)} | options
        return self._ours(options)

    def dialling(self, **options: str) -> str:
        """Return the URL with which requite dials; `options` are its query parameters."""
        if self.wire.is_secure:
            options = {"ca": str(self.certificates.ca)} | options
        return self._ours(options)

    def _ours(self, options: dict[str, str]) -> str:
        query = f"?{urlencode(options, safe='/')}" if options else ""
        return f"{self.wire.ours}://{self._body}{query}"

    @property
    def _body(self) -> str:
        return self.file or f"{self.wire.host}:{self.port}{self.wire.path}"


class Places:
    """Creates the places of a test."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self._folder = folder
        self.certificates = certificates

    def new(self, wire: Wire = TCP) -> Place:
        """Return a place with port 0, or with an unused path."""
        file = str(self._folder / f"{next(_numbers)}.sock") if wire is IPC else ""
        return Place(wire, self.certificates, file=file)


# --- fixtures, for import by a conftest.py --------------------------------------------------------
@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates for the session: valid ones, and ones that a peer must reject."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def places(tmp_path: Path, certificates: Certificates) -> Places:
    """Places for the endpoints of a test."""
    return Places(tmp_path, certificates)
