"""The transports of SP, as requite and as nng write them, and certificates for those with TLS.

A test names a wire; one side listens on a free port (or a fresh path) of it, and what it tells of
that is turned into the URL that the other side dials.
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
    """Files of an authority, of a certificate for `localhost` and 127.0.0.1, and of a stranger."""

    ca: Path
    certificate: Path
    key: Path
    other_ca: Path
    wrong_name: Path
    wrong_name_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write the files into a folder."""
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
    """A transport: its scheme in requite's URLs and in nng's."""

    name: str
    ours: str
    theirs: str
    host: str = "127.0.0.1"
    path: str = ""

    @property
    def is_secure(self) -> bool:
        """Whether certificates are needed."""
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
    """Where somebody listens, or shall listen: a port (0: a free one), or the path of a socket."""

    wire: Wire
    certificates: Certificates
    port: int = 0
    file: str = ""

    def at(self, port: int) -> Place:
        """Return the same place with the port that it was given in the end."""
        return Place(self.wire, self.certificates, port, self.file)

    def as_told(self, url: str) -> Place:
        """Return the same place with the port in the URL of a listener."""
        found = re.search(r":(\d+)(?:[/?]|$)", url)
        return self.at(int(found.group(1))) if found else self

    @property
    def nng(self) -> str:
        """The URL for nng."""
        return f"{self.wire.theirs}://{self._body}"

    def listening(self, **options: str) -> str:
        """Return requite's URL to listen at."""
        if self.wire.is_secure:
            files = self.certificates
            options = {"certificate": str(files.certificate), "key": str(files.key)} | options
        return self._ours(options)

    def dialling(self, **options: str) -> str:
        """Return requite's URL to dial."""
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
    """Makes places to listen at."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self._folder = folder
        self.certificates = certificates

    def new(self, wire: Wire = TCP) -> Place:
        """Return a place with port 0, or with a path that is not in use."""
        file = str(self._folder / f"{next(_numbers)}.sock") if wire is IPC else ""
        return Place(wire, self.certificates, file=file)


# --- fixtures: to be imported by a conftest.py ----------------------------------------------------
@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates that are good, and some that are not."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def places(tmp_path: Path, certificates: Certificates) -> Places:
    """Where the endpoints of a test may listen."""
    return Places(tmp_path, certificates)
