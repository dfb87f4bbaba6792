"""Certificates for the tests of TLS: valid ones, and ones that a peer must reject."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import trustme

from requite.transport.tls import TlsSettings

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Shown:
    """The paths of a certificate and its private key, both PEM."""

    certificate: str
    key: str


class Certificates:
    """Certificates as PEM files in a folder; each is issued on first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self._stranger = trustme.CA()

    @cached_property
    def ca(self) -> str:
        """The authority that signed every certificate but `stranger`."""
        return self._write("ca", self._authority.cert_pem)

    @cached_property
    def other_ca(self) -> str:
        """The authority that signed `stranger`; peers do not trust it."""
        return self._write("other-ca", self._stranger.cert_pem)

    @cached_property
    def server(self) -> Shown:
        """A valid certificate for localhost."""
        return self._issue("server", self._authority, "localhost", "127.0.0.1", "::1")

    @cached_property
    def elsewhere(self) -> Shown:
        """A certificate for another host name."""
        return self._issue("elsewhere", self._authority, "elsewhere.example")

    @cached_property
    def expired(self) -> Shown:
        """A certificate for localhost that expired in 2001."""
        return self._issue("expired", self._authority, "localhost", "127.0.0.1", until=LONG_AGO)

    @cached_property
    def early(self) -> Shown:
        """A certificate for localhost that is valid from 2100 on."""
        issued = self._authority.issue_cert(
            "localhost", "127.0.0.1", not_before=FAR_AHEAD, not_after=FAR_AHEAD + timedelta(days=1)
        )
        return self._save("early", issued)

    @cached_property
    def self_signed(self) -> Shown:
        """A certificate that only its own key signed."""
        alone = trustme.CA()
        return Shown(
            self._write("self-signed", alone.cert_pem),
            self._write("self-signed-key", alone.private_key_pem),
        )

    @cached_property
    def client(self) -> Shown:
        """A valid client certificate."""
        return self._issue("client", self._authority, "client@example.org")

    def user(self, name: str) -> Shown:
        """Issue a certificate for a user: `CN=name,OU=users,O=Example`."""
        issued = self._authority.issue_cert(
            common_name=name,
            organization_name="Example",
            organization_unit_name="users",
        )
        return self._save(f"user-{name}", issued)

    @cached_property
    def stranger(self) -> Shown:
        """A certificate for localhost from the untrusted authority."""
        return self._issue("stranger", self._stranger, "localhost", "127.0.0.1")

    def issue(self, name: str, *hosts: str) -> Shown:
        """Issue another valid certificate for these hosts."""
        return self._issue(name, self._authority, *hosts)

    @property
    def to_listen(self) -> TlsSettings:
        """TLS settings for a listener with the valid certificate."""
        return self.showing(self.server)

    @property
    def to_dial(self) -> TlsSettings:
        """TLS settings for dialling: trust in `ca`."""
        return TlsSettings(ca=self.ca)

    @staticmethod
    def showing(shown: Shown) -> TlsSettings:
        """Return TLS settings for a listener that presents this certificate."""
        return TlsSettings(certificate=shown.certificate, key=shown.key)

    def _issue(
        self, name: str, by: trustme.CA, *names: str, until: datetime | None = None
    ) -> Shown:
        return self._save(name, by.issue_cert(*names, not_after=until))

    def _save(self, name: str, issued: trustme.LeafCert) -> Shown:
        return Shown(
            self._write(f"{name}-certificate", *issued.cert_chain_pems),
            self._write(f"{name}-key", issued.private_key_pem),
        )

    def _write(self, name: str, *blobs: trustme.Blob) -> str:
        path = self._folder / f"{name}.pem"
        path.write_bytes(b"".join(blob.bytes() for blob in blobs))
        return str(path)
