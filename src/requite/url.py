"""The URL of a service: which protocol, where, which service, as whom. Parsed here and only here.

    mdp://host:5555/echo                        Majordomo over TCP; the port may be left out
    mdp://a:5555,b:5555/echo                    several brokers of which one serves, tried in turn
    mdp://user:password@host/echo?dialect=0.2   PLAIN credentials; an older dialect of MDP
    mdp+ipc:///run/broker.sock?service=echo     over a Unix socket, whose path takes the URL's path
    mdp+inproc://name/echo                      within one event loop

The path (or the option `service`) names the service; `%xx` stands for a byte of UTF-8 there and in
user and password. A new protocol adds a row to `_SCHEMES`.

A password appears in no message, `str` or `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn
from urllib.parse import unquote

from requite.errors import ConfigurationError
from requite.transport.address import Address, InprocAddress, parse_ipc, parse_tcp

MDP_PORT: Final = 5555
# Greedy on purpose: up to the last @, so that a password with an unescaped / or @ is hidden, too.
_SECRET: Final = re.compile(r"//([^/?#:@]*):.*@", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A URL taken apart. `protocol` is the scheme without its transport (`mdp`); `service` is ""
    where none is named. `options` are those of the query, `service` apart."""

    protocol: str
    addresses: tuple[Address, ...]
    service: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        places = ", ".join(map(str, self.addresses))
        return f"{self.service or self.protocol} at {places}"


class _Places(NamedTuple):
    """What of a URL's body is addresses, and what is left for the service."""

    addresses: tuple[Address, ...]
    path: str


class _Scheme(NamedTuple):
    protocol: str
    read_places: Callable[[str, str], _Places]
    options: tuple[str, ...]


def parse_url(text: str) -> ServiceUrl:
    """Read the URL of a service.

    Raises `ConfigurationError`, which quotes it (without a password) and says what is known.
    """
    shown = redact(text)
    name, separator, rest = text.partition("://")
    scheme = _SCHEMES.get(name)
    if not separator or scheme is None:
        _refuse(shown, f"the scheme is none of {', '.join(f'{known}://' for known in _SCHEMES)}")
    if "#" in rest:
        _refuse(shown, "it has a fragment; write %23 for a # that belongs to a name")
    body, _, query = rest.partition("?")
    credentials, at, where = body.rpartition("@")
    if "@" in query or "@" in credentials or "/" in credentials:
        # To quote the part in question might give a password away.
        _refuse(shown, "write %40 for an @ and %2F for a / that belongs to a name or a password")
    user, password = _read_credentials(credentials, shown) if at else (None, None)
    places = scheme.read_places(where, shown)
    options = _read_options(query, scheme, shown)
    service = _only_one(_decode(places.path, shown), options.pop("service", ""), shown)
    return ServiceUrl(scheme.protocol, places.addresses, service, user, password, options)


def redact(text: str) -> str:
    """Return a URL without its password, for messages."""
    return _SECRET.sub(r"//\1:***@", text, count=1)


# --- the parts ------------------------------------------------------------------------------------
def _read_tcp(body: str, shown: str) -> _Places:
    authority, _, path = body.partition("/")
    if not authority:
        _refuse(shown, "the host is missing")
    addresses = tuple(parse_tcp(place, shown, MDP_PORT) for place in authority.split(","))
    if any(address.is_wildcard or not address.port for address in addresses):
        _refuse(shown, "host * and port 0 are for listening; here it takes a place to dial")
    return _Places(addresses, path)


def _read_ipc(body: str, shown: str) -> _Places:
    return _Places((parse_ipc(_decode(body, shown), shown),), "")


def _read_inproc(body: str, shown: str) -> _Places:
    name, _, path = body.partition("/")
    if not name:
        _refuse(shown, "the name is missing")
    return _Places((InprocAddress(name),), path)


_MDP_OPTIONS: Final = ("dialect", "service")
_SCHEMES: Final[dict[str, _Scheme]] = {
    "mdp": _Scheme("mdp", _read_tcp, _MDP_OPTIONS),
    "mdp+ipc": _Scheme("mdp", _read_ipc, _MDP_OPTIONS),
    "mdp+inproc": _Scheme("mdp", _read_inproc, _MDP_OPTIONS),
}


def _read_credentials(text: str, shown: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        _refuse(shown, "credentials are user:password, both")
    return _decode(user, shown), _decode(password, shown)


def _read_options(query: str, scheme: _Scheme, shown: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name not in scheme.options:
            _refuse(shown, f"there is no option {name!r}; there are {', '.join(scheme.options)}")
        if name in options or not value:
            _refuse(shown, f"the option {name!r} takes one value")
        options[name] = _decode(value, shown)
    return options


def _only_one(path: str, option: str, shown: str) -> str:
    if path and option and path != option:
        _refuse(shown, f"it names two services, {path!r} and {option!r}")
    return path or option


def _decode(text: str, shown: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse(shown, "what its %xx stand for is not UTF-8")


def _refuse(shown: str, why: str) -> NoReturn:
    raise ConfigurationError(f"cannot read the URL {shown!r}: {why}")
