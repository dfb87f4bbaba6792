"""Parse URLs: the syntax that all protocols share.

    SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?OPTION=VALUE&OPTION=VALUE

`%xx` encodes a byte of UTF-8 in user, password, path and the values of options. Each protocol's
file interprets the path and the options. No message, `str` or `repr` shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn
from urllib.parse import unquote

from requite.errors import ConfigurationError
from requite.transport.address import (
    Address,
    HostAddress,
    InprocAddress,
    is_private,
    parse_inproc,
    parse_ipc,
    parse_tcp,
)
from requite.transport.tls import TlsSettings

TLS_OPTIONS: Final = ("ca", "certificate", "key", "server_name")
KEY_OPTIONS: Final = ("ca", "certificate", "certificate_key", "server_name")
"""The same for protocols whose option `key` is that of a pool."""
_NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
# Deliberately greedy: up to the last @, to hide a password with an unescaped / or @, too. A user
# may have one of them as well.
_SECRET: Final = re.compile(r"//([^:]*):.*@", re.DOTALL)
_SECRET_IN_TEXT: Final = re.compile(r"(://[^\s:]*):\S*@")


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A parsed URL. `protocol` is the scheme without its transport (`mdp`, `sp`); `service` is ""
    if the URL names none. `options` are those of the query, as text, without `service`. `tls` is
    None unless the addresses use TLS. `peer_query` is the query of the URLs by which peers dial
    these addresses ("?ids=draft"; "": none).
    """

    protocol: str
    addresses: tuple[Address, ...]
    service: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    tls: TlsSettings | None = None
    peer_query: str = ""

    def __str__(self) -> str:
        places = ", ".join(map(str, self.addresses))
        return f"{self.service or self.protocol} at {places}"


class Places(NamedTuple):
    """The addresses in a URL's body, and its path."""

    addresses: tuple[Address, ...]
    path: str


class Scheme(NamedTuple):
    """How to parse the URLs of a scheme. `read_places(body, shown)` parses the part between
    credentials and options. `options` in `may_be_empty` need no value."""

    read_places: Callable[[str, str], Places]
    options: tuple[str, ...]
    may_be_empty: tuple[str, ...] = ()


def read_parts(protocol: str, scheme: Scheme, rest: str, shown: str) -> ServiceUrl:
    """Parse the part after `://`; `shown` is the whole URL without its password.

    Raises `ConfigurationError`.
    """
    if "#" in rest:
        refuse(shown, "it has a fragment; write %23 for a # in a name")
    body, _, query = rest.partition("?")
    credentials, at, where = body.rpartition("@")
    if "@" in query or "@" in credentials or "/" in credentials:
        # Quoting this part might reveal a password.
        refuse(shown, "write %40 for an @ and %2F for a / in a name or a password")
    user, password = _read_credentials(credentials, shown) if at else (None, None)
    places = scheme.read_places(where, shown)
    options = read_options(query, scheme.options, scheme.may_be_empty, shown)
    service = _only_one(decode(places.path, shown), options.pop("service", ""), shown)
    return ServiceUrl(protocol, places.addresses, service, user, password, options)


def redact(text: str) -> str:
    """Return a URL, even a malformed one, without its password, for messages."""
    start = "" if "://" in text else "//"
    return _SECRET.sub(r"//\1:***@", start + text, count=1).removeprefix(start)


def redact_text(text: str) -> str:
    """Return a message without the passwords of the URLs in it. A last resort, for messages of
    other libraries: a password with a blank that is not escaped remains."""
    return _SECRET_IN_TEXT.sub(r"\1:***@", text)


def refuse(shown: str, why: str) -> NoReturn:
    """Raise `ConfigurationError` for the URL `shown`."""
    raise ConfigurationError(f"cannot read the URL {shown!r}: {why}")


def check_password_is_private(url: ServiceUrl, shown: str) -> None:
    """Refuse a password that would cross a network in clear text (ZMTP PLAIN does not encrypt)."""
    if url.user is None or all(map(is_private, url.addresses)):
        return
    open_to = ", ".join(str(each) for each in url.addresses if not is_private(each))
    refuse(
        shown,
        f"the password would be sent to {open_to} in clear text, and other machines could read it;"
        " use mdp+tls://, or connect over ipc or loopback",
    )


def check_can_be_dialled(url: ServiceUrl, shown: str) -> None:
    """Refuse addresses that only a listener can use: host *, port 0, name *."""
    for address in url.addresses:
        match address:
            case HostAddress() if address.is_wildcard or not address.port:
                refuse(
                    shown,
                    "host * and port 0 are only for listening; write the address to connect to",
                )
            case InprocAddress(name="*"):
                refuse(shown, "the name * is only for listening; write the name to connect to")


# --- places ---------------------------------------------------------------------------------------
def read_tcp(body: str, shown: str) -> Places:
    """Parse hosts, each with its port."""
    hosts, path = split_authority(body, shown)
    return Places(tuple(parse_tcp(host, shown) for host in hosts), path)


def read_ipc(body: str, shown: str) -> Places:
    """Parse the path of a Unix socket, which is the whole path of the URL."""
    return Places((parse_ipc(decode(body, shown), shown),), "")


def read_inproc(body: str, shown: str) -> Places:
    """Parse the name of an `inproc` address."""
    name, _, path = body.partition("/")
    return Places((parse_inproc(name, shown),), path)


def split_authority(body: str, shown: str) -> tuple[list[str], str]:
    """Return the comma-separated hosts and the path."""
    authority, _, path = body.partition("/")
    if not authority:
        refuse(shown, "the host is missing")
    return authority.split(","), path


# --- the other parts ------------------------------------------------------------------------------
def _read_credentials(text: str, shown: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        refuse(shown, "credentials must have the form user:password")
    return decode(user, shown), decode(password, shown)


def read_options(
    query: str, known: Sequence[str], may_be_empty: Sequence[str], shown: str
) -> dict[str, str]:
    """Parse the options after the `?`. Raises `ConfigurationError` for unknown ones."""
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in (*TLS_OPTIONS, *KEY_OPTIONS) and name not in known:
            refuse(shown, _why_not_for_tls(name, known))
        if name not in known:
            refuse(shown, f"unknown option {name!r}; the options are {', '.join(known)}")
        is_lacking = not value and name not in may_be_empty
        if name in options or is_lacking:
            refuse(shown, f"the option {name!r} must have exactly one value")
        options[name] = decode(value, shown)
    return options


def _why_not_for_tls(name: str, known: Sequence[str]) -> str:
    if "ca" not in known:
        return (
            f"the option {name!r} is only for TLS: mdp+tls, sp+tls, sp+wss, flp+tls, pirate+tls and"
            " amqps"
        )
    return f"the file of the private key is the option 'key' here, not {name!r}"


def _only_one(path: str, option: str, shown: str) -> str:
    if path and option and path != option:
        refuse(shown, f"it names two services, {path!r} and {option!r}")
    return path or option


def decode(text: str, shown: str) -> str:
    if _NO_ESCAPE.search(text):
        refuse(shown, "write %25 for a % in a name or a password")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        refuse(shown, "its percent-encoded bytes (%xx) are not UTF-8")
