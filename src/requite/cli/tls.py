"""The options of TLS for commands that listen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote

from cyclopts import Group, Parameter

from requite.errors import ConfigurationError

if TYPE_CHECKING:
    from requite.transport.tls import TlsSettings

_TLS: Final = Group("TLS", sort_key=45)
_SECURE: Final = ("tls", "wss")


@Parameter(name="*", group=_TLS)
@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of the addresses with TLS at which a command listens."""

    tls_certificate: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Certificate for addresses with TLS, with the chain up to its authority (PEM). "
            "`requite keys new` makes one.",
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Private key of the certificate, without a passphrase. [default: it is in the "
            "file of the certificate]",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        Parameter(
            metavar="FILE",
            help="Accept only peers with a certificate that is signed by this authority.",
        ),
    ] = None

    def complete(self, *lists: Sequence[str]) -> list[tuple[str, ...]]:
        """Add these options to the addresses and URLs with TLS that have none of their own.

        Raises `ConfigurationError` for options that no address uses.
        """
        completed = [tuple(map(self._complete, places)) for places in lists]
        if self != NO_TLS and completed == [tuple(places) for places in lists]:
            raise ConfigurationError(
                "--tls-certificate, --tls-key and --tls-ca have no effect, because no address uses"
                " TLS or each has options of its own: listen at tls://HOST:PORT, or remove them"
            )
        return completed

    def settings(self) -> TlsSettings | None:
        """Return the settings of a listener that has no URL, None without TLS.

        Raises `ConfigurationError` for a key or an authority without a certificate.
        """
        from requite.transport.tls import TlsSettings

        if self.tls_certificate is None:
            if self != NO_TLS:
                raise ConfigurationError("--tls-key and --tls-ca require --tls-certificate")
            return None
        return TlsSettings(
            certificate=self.tls_certificate,
            key=self.tls_key,
            ca=self.tls_ca,
            verify_client=self.tls_ca is not None,
        )

    def _complete(self, place: str) -> str:
        scheme, _, rest = place.partition("://")
        if scheme.rpartition("+")[2] not in _SECURE or "certificate=" in rest.partition("?")[2]:
            return place
        files = {"certificate": self.tls_certificate, "key": self.tls_key, "ca": self.tls_ca}
        given = [f"{name}={quote(str(path))}" for name, path in files.items() if path is not None]
        if not given:
            return place
        return f"{place}{'&' if '?' in rest else '?'}{'&'.join(given)}"


NO_TLS: Final = Tls()
