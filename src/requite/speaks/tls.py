"""TLS in URLs and in addresses to listen at: where they lead, and the settings in their options.

    mdp+tls://HOST:PORT/echo?ca=ca.pem&certificate=shop.pem
    tls://0.0.0.0:5555?certificate=broker.pem&key=broker.key&ca=ca.pem

The options are the same everywhere. Only the private key has another name, `certificate_key`, where
`key` is that of a pool (MDP and RabbitMQ).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ssl import TLSVersion
from typing import Any, Final, TypeAlias

from requite.errors import ConfigurationError
from requite.speaks.url import (
    KEY_OPTIONS,
    TLS_OPTIONS,
    Places,
    ServiceUrl,
    check_can_be_dialled,
    read_options,
    refuse,
    split_authority,
)
from requite.transport.address import Address, HostAddress, is_private, parse_address, parse_tls
from requite.transport.tls import TlsSettings

Place: TypeAlias = tuple[Address, TlsSettings | None]
"""An address, and its TLS settings if it uses TLS."""

_SCHEME: Final = "tls"


def read_tls(body: str, shown: str, default_port: int | None = None) -> Places:
    """Parse hosts, each with its port, and the path."""
    hosts, path = split_authority(body, shown)
    return Places(tuple(parse_tls(host, shown, default_port) for host in hosts), path)


def tls_of(
    url: ServiceUrl,
    *,
    listening: bool,
    shown: str,
    minimum_version: TLSVersion = TLSVersion.TLSv1_3,
) -> TlsSettings | None:
    """Return the TLS settings in a URL's options; None for a URL without TLS. A listener with a
    `ca` verifies its clients. Raises `ConfigurationError`."""
    if not any(isinstance(place, HostAddress) and place.is_secure for place in url.addresses):
        return None
    own = KEY_OPTIONS if url.protocol in ("mdp", "amqp") else TLS_OPTIONS
    given = {
        name: url.options[key]
        for name, key in zip(TLS_OPTIONS, own, strict=True)
        if key in url.options
    }
    return _settings(given, listening=listening, shown=shown, minimum_version=minimum_version)


def read_place(text: str, schemes: Collection[str], *, listening: bool) -> Place:
    """Parse the address of a broker, a queue or a pair link; options of a TLS address are settings.

    Raises `ConfigurationError`, also for files that cannot be used.
    """
    place, mark, query = text.partition("?")
    if not place.startswith(f"{_SCHEME}://"):
        return _check_reachable(parse_address(text, schemes), text, listening), None
    address = parse_address(place, schemes)
    options = read_options(query, TLS_OPTIONS, (), text) if mark else {}
    tls = _settings(options, listening=listening, shown=text)
    check_files(tls, listening=listening)
    return _check_reachable(address, text, listening), tls


def check_passwords_are_private(listening: Iterable[Address], *, insecure: bool) -> None:
    """Raise `ConfigurationError` for a listener that would receive passwords in clear text from
    other machines (ZMTP PLAIN), unless `insecure`."""
    exposed = [str(address) for address in listening if not is_private(address)]
    if exposed and not insecure:
        raise ConfigurationError(
            f"users with passwords cannot log in at {', '.join(exposed)}: a network would carry"
            " their passwords in clear text. Listen at tls://HOST:PORT, over ipc or on loopback;"
            " --insecure (insecure=True) accepts the risk"
        )


def check_files(tls: TlsSettings | None, *, listening: bool) -> None:
    """Raise `ConfigurationError`, naming file and setting, for files that cannot be used."""
    if tls is not None:
        (tls.check_listening if listening else tls.check_dialling)()


def _settings(
    options: Mapping[str, Any], *, listening: bool, shown: str, **others: Any
) -> TlsSettings:
    if listening and "server_name" in options:
        refuse(
            shown,
            "the option 'server_name' is only for connecting: a listener has the names in its"
            " certificate",
        )
    if listening and "certificate" not in options:
        refuse(
            shown,
            "a listener requires certificate=FILE and key=FILE (--tls-certificate and --tls-key);"
            " `requite keys new` makes certificates",
        )
    try:
        return TlsSettings(**options, verify_client=listening and "ca" in options, **others)
    except ConfigurationError as error:
        refuse(shown, str(error))


def _check_reachable(address: Address, text: str, listening: bool) -> Address:
    if not listening:
        check_can_be_dialled(ServiceUrl("", (address,)), text)
    return address
