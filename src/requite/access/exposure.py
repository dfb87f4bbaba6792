"""Which addresses a listener may take without knowing its users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from requite.errors import ConfigurationError
from requite.transport.address import Address, is_local
from requite.transport.tls import TlsSettings


class Listened(Protocol):
    """An address to listen at, with its TLS settings."""

    @property
    def address(self) -> Address: ...
    @property
    def tls(self) -> TlsSettings | None: ...


def check_exposure(listen: Iterable[Listened], *, is_guarded: bool, insecure: bool) -> None:
    """Raise `ConfigurationError` if other machines could use a listener that does not know its
    users: neither by an access file (`is_guarded`), nor by their certificates."""
    if insecure or is_guarded:
        return
    for endpoint in listen:
        knows_users = endpoint.tls is not None and endpoint.tls.verify_client
        if not (knows_users or is_local(endpoint.address)):
            raise ConfigurationError(
                f"other machines could reach {endpoint.address}, and everybody there could use it:"
                " give it an access file (`--access FILE`, `access=`), or listen at 127.0.0.1 or a"
                " Unix socket. `--insecure` (`insecure=True`) lets everybody in"
            )
