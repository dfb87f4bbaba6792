"""The URL of a service: which protocol, where, which service, as whom. Parsed here and only here.

    mdp://host:5555/echo                        Majordomo over TCP; the port may be left out
    mdp://a:5555,b:5555/echo                    several brokers of which one serves, tried in turn
    mdp://user:password@host/echo?dialect=0.2   PLAIN credentials; an older dialect of MDP
    mdp+ipc:///run/broker.sock?service=echo     over a Unix socket, whose path takes the URL's path
    mdp+inproc://name/echo                      within one event loop
    mdp://host:5555?pool=core&key=42            a group of a pool of workers

    sp+tcp://a:7000,b:7000                      scalability protocols: connected to both at once
    sp+ipc:///run/service.sock                  over a Unix socket
    sp+tls://host:7000?ca=/etc/requite/ca.pem   over TLS; also certificate=, key=, server_name=
    sp+ws://host/path, sp+wss://host/path       over a WebSocket; port 80 and 443 by default
    inproc://name                               within one event loop; or sp+inproc

    flp://a:5555,b:5555                         Freelance: several servers, of which one answers
    flp+ipc:///run/server.sock                  over a Unix socket; flp+inproc within one event loop

    pirate://host:5555                          a Lazy Pirate's server, or a queue's front
    pirate://queue:5556?protocol=simple         a queue's back, for workers; else paranoid
    pirate+ipc:///run/service.sock              over a Unix socket; or pirate+inproc://name

    amqp://user:password@host:5672/vhost?queue=echo     RPC over AMQP 0.9.1 (RabbitMQ); amqps: TLS
    amqps://host/vhost?pool=core&key=42                 a group of a pool of workers

In URLs of MDP the path (or the option `service`) names the service; `%xx` stands for a byte of
UTF-8 there, in user and password, and in the values of options. A new protocol adds a row to
`_SCHEMES`.

The options of SP say how its channels are used: `priority` (1, the first, to 16) and `weight` (1 to
1000) among several, `resend` (seconds, or off), `ids=draft` for the endpoint types of the draft.
Those of Freelance: `model` (agent, failover or shotgun) and, to listen, `public`: the endpoint that
clients dial (tcp://host:port). Those of AMQP: `queue`, or `pool` and `key`, name the service;
`confirm` and `reply` are for clients, `id` and `activity` for workers. Its path is the virtual
host, `/` where there is none.

A password appears in no message, `str` or `repr`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Final, Literal, NamedTuple, NoReturn
from urllib.parse import unquote

from requite.errors import ConfigurationError
from requite.protocols.freelance.wire import Model
from requite.transport.address import (
    Address,
    HostAddress,
    InprocAddress,
    TlsAddress,
    parse_address,
    parse_inproc,
    parse_ipc,
    parse_tcp,
    parse_tls,
    parse_ws,
)
from requite.transport.tls import TlsSettings
from requite.url_guess import explain

MDP_PORT: Final = 5555
# The AMQP 0.9.1 URI Specification of RabbitMQ, section 5.
AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
PRIORITY_MAX: Final = 16
WEIGHT_MAX: Final = 1000
_NO_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
# Greedy on purpose: up to the last @, so that a password with an unescaped / or @ is hidden, too.
_SECRET: Final = re.compile(r"//([^/?#:@]*):.*@", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ServiceUrl:
    """A URL taken apart. `protocol` is the scheme without its transport (`mdp`, `sp`); `service` is
    "" where none is named. `options` are those of the query as text, `service` apart.

    What the options of SP mean, for all `addresses` alike: `priority` and `weight` of the channels;
    `resend`, in seconds, "off", or None where the URL leaves it open; `draft_ids` for the endpoint
    types 16 and 17 in place of 48 and 49. `tls` is there where the addresses use it, None else.
    """

    protocol: str
    addresses: tuple[Address, ...]
    service: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    priority: int = 1
    weight: int = 1
    resend: float | Literal["off"] | None = None
    draft_ids: bool = False
    tls: TlsSettings | None = None

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


def parse_url(text: str, *, listening: bool = False) -> ServiceUrl:
    """Read the URL of a service to dial or, `listening`, of places to listen at: then `*` stands
    for all addresses of the machine (or for a free name) and port 0 for a free port.

    Raises `ConfigurationError`, which quotes it (without a password) and says what is known.
    """
    shown = redact(text)
    name, separator, rest = text.partition("://")
    scheme = _SCHEMES.get(name)
    if not separator or scheme is None:
        _refuse(shown, _guess(shown, listening=listening))
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
    url = ServiceUrl(scheme.protocol, places.addresses, service, user, password, options)
    if url.protocol == "sp":
        return _scalability(url, listening, shown)
    if url.protocol == "flp":
        return _freelance(url, listening, shown)
    if url.protocol == "pirate":
        return _pirate(url, listening, shown)
    if url.protocol == "amqp":
        return _amqp(url, listening, shown)
    if listening:
        _refuse(shown, "nobody listens at it but a broker: requite broker --bind tcp://host:port")
    _check_can_be_dialled(url, shown)
    return _majordomo(url, shown)


def _guess(shown: str, *, listening: bool) -> str:
    def can_be_read(guess: str) -> bool:
        try:
            parse_url(guess, listening=listening)
        except ConfigurationError:
            return False
        return True

    return explain(shown, tuple(_SCHEMES), can_be_read, listening=listening)


def redact(text: str) -> str:
    """Return a URL, or what was to be one, without its password, for messages."""
    start = "" if "://" in text else "//"
    return _SECRET.sub(r"//\1:***@", start + text, count=1).removeprefix(start)


# --- places ---------------------------------------------------------------------------------------
def _read_tcp(body: str, shown: str) -> _Places:
    hosts, path = _split_authority(body, shown)
    return _Places(tuple(parse_tcp(host, shown, MDP_PORT) for host in hosts), path)


def _read_ipc(body: str, shown: str) -> _Places:
    return _Places((parse_ipc(_decode(body, shown), shown),), "")


def _read_inproc(body: str, shown: str) -> _Places:
    name, _, path = body.partition("/")
    return _Places((parse_inproc(name, shown),), path)


def _read_sp_tcp(body: str, shown: str) -> _Places:
    hosts, path = _split_authority(body, shown)
    return _Places(tuple(parse_tcp(host, shown) for host in hosts), path)


def _read_sp_tls(body: str, shown: str) -> _Places:
    hosts, path = _split_authority(body, shown)
    return _Places(tuple(parse_tls(host, shown) for host in hosts), path)


def _read_sp_ws(body: str, shown: str) -> _Places:
    return _read_web(body, shown, secure=False)


def _read_sp_wss(body: str, shown: str) -> _Places:
    return _read_web(body, shown, secure=True)


def _read_web(body: str, shown: str, *, secure: bool) -> _Places:
    hosts, path = _split_authority(body, shown)
    places = (parse_ws(host, f"/{path}", shown, secure=secure) for host in hosts)
    return _Places(tuple(places), "")


def _read_amqp(body: str, shown: str) -> _Places:
    host, vhost = _split_amqp(body, shown)
    return _Places((parse_tcp(host, shown, AMQP_PORT),), vhost)


def _read_amqps(body: str, shown: str) -> _Places:
    host, vhost = _split_amqp(body, shown)
    place = parse_tcp(host, shown, AMQPS_PORT)
    return _Places((TlsAddress(place.host, place.port),), vhost)


def _split_amqp(body: str, shown: str) -> tuple[str, str]:
    """Return host and virtual host, which is one segment of a path."""
    hosts, vhost = _split_authority(body, shown)
    if len(hosts) > 1:
        _refuse(shown, "it takes one host; put a name or a load balancer before those of a cluster")
    if "/" in vhost:
        _refuse(shown, "the path is the virtual host; write %2F for a / that belongs to its name")
    return hosts[0], vhost


def _split_authority(body: str, shown: str) -> tuple[list[str], str]:
    authority, _, path = body.partition("/")
    if not authority:
        _refuse(shown, "the host is missing")
    return authority.split(","), path


_MDP_OPTIONS: Final = ("dialect", "service", "pool", "key")
_SP_OPTIONS: Final = ("priority", "weight", "resend", "ids")
_TLS_OPTIONS: Final = ("ca", "certificate", "key", "server_name")
_SP_TLS_OPTIONS: Final = _SP_OPTIONS + _TLS_OPTIONS
_PIRATE_OPTIONS: Final = ("protocol",)
_PIRATE_QUEUES: Final = ("simple", "paranoid")
_FLP_OPTIONS: Final = ("model", "public")
_AMQP_OPTIONS: Final = ("queue", "pool", "key", "confirm", "reply", "id", "activity")
# As those of SP, but for the private key: a key is the pool's here.
_AMQP_TLS: Final = ("ca", "certificate", "certificate_key", "server_name")
_AMQPS_OPTIONS: Final = (*_AMQP_OPTIONS, *_AMQP_TLS)
_POOLED: Final = ("amqp", "mdp")
_SCHEMES: Final[dict[str, _Scheme]] = {
    "mdp": _Scheme("mdp", _read_tcp, _MDP_OPTIONS),
    "mdp+ipc": _Scheme("mdp", _read_ipc, _MDP_OPTIONS),
    "mdp+inproc": _Scheme("mdp", _read_inproc, _MDP_OPTIONS),
    "sp+tcp": _Scheme("sp", _read_sp_tcp, _SP_OPTIONS),
    "sp+ipc": _Scheme("sp", _read_ipc, _SP_OPTIONS),
    "sp+tls": _Scheme("sp", _read_sp_tls, _SP_TLS_OPTIONS),
    "sp+ws": _Scheme("sp", _read_sp_ws, _SP_OPTIONS),
    "sp+wss": _Scheme("sp", _read_sp_wss, _SP_TLS_OPTIONS),
    "sp+inproc": _Scheme("sp", _read_inproc, _SP_OPTIONS),
    "inproc": _Scheme("sp", _read_inproc, _SP_OPTIONS),
    "pirate": _Scheme("pirate", _read_sp_tcp, _PIRATE_OPTIONS),
    "pirate+ipc": _Scheme("pirate", _read_ipc, _PIRATE_OPTIONS),
    "pirate+inproc": _Scheme("pirate", _read_inproc, _PIRATE_OPTIONS),
    "amqp": _Scheme("amqp", _read_amqp, _AMQP_OPTIONS),
    "amqps": _Scheme("amqp", _read_amqps, _AMQPS_OPTIONS),
    "flp": _Scheme("flp", _read_sp_tcp, _FLP_OPTIONS),
    "flp+ipc": _Scheme("flp", _read_ipc, _FLP_OPTIONS),
    "flp+inproc": _Scheme("flp", _read_inproc, _FLP_OPTIONS),
}


def _check_can_be_dialled(url: ServiceUrl, shown: str) -> None:
    for address in url.addresses:
        match address:
            case HostAddress() if address.is_wildcard or not address.port:
                _refuse(shown, "host * and port 0 are for listening; here it takes a place to dial")
            case InprocAddress(name="*"):
                _refuse(shown, "the name * is for listening; here it takes a place to dial")


# --- Majordomo ------------------------------------------------------------------------------------
def _majordomo(url: ServiceUrl, shown: str) -> ServiceUrl:
    """Name the service of a group of a pool."""
    pool, key = url.options.get("pool"), url.options.get("key")
    if pool is None and key is None:
        return url
    if pool is None or key is None:
        _refuse(shown, "a group of a pool has both options: pool=NAME and key=KEY")
    if url.service:
        _refuse(shown, f"it names a service, {url.service!r}, and a group of a pool")
    # Only here: clients of other protocols load nothing of Majordomo.
    from requite.protocols.majordomo.keyed import service_of

    try:
        return replace(url, service=service_of(pool, key))
    except ConfigurationError as error:
        _refuse(shown, str(error))


# --- the scalability protocols --------------------------------------------------------------------
def _scalability(url: ServiceUrl, listening: bool, shown: str) -> ServiceUrl:
    """Check what SP cannot do, and read its options."""
    if url.user is not None:
        _refuse(shown, "SP has no user and password; sp+tls checks certificates")
    if url.service:
        _refuse(shown, "SP names no services, so nothing follows the place")
    if not listening:
        _check_can_be_dialled(url, shown)
    options = url.options
    return replace(
        url,
        priority=_read_whole("priority", options.get("priority", "1"), PRIORITY_MAX, shown),
        weight=_read_whole("weight", options.get("weight", "1"), WEIGHT_MAX, shown),
        resend=_read_resend(options.get("resend"), shown),
        draft_ids=_read_ids(options.get("ids"), shown),
        tls=_read_tls(url, listening, shown),
    )


def _read_whole(name: str, value: str, most: int, shown: str) -> int:
    is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if not is_number or not 1 <= int(value) <= most:
        _refuse(shown, f"the option {name!r} takes a whole number from 1 to {most}")
    return int(value)


def _read_resend(value: str | None, shown: str) -> float | Literal["off"] | None:
    if value is None:
        return None
    if value == "off":
        return "off"
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not isfinite(seconds) or seconds <= 0:
        _refuse(shown, "the option 'resend' takes seconds, more than 0, or off")
    return seconds


def _read_ids(value: str | None, shown: str) -> bool:
    if value not in (None, "draft"):
        _refuse(shown, "the option 'ids' takes draft alone; left out, they are those in practice")
    return value is not None


def _read_tls(url: ServiceUrl, listening: bool, shown: str) -> TlsSettings | None:
    """Make the settings for TLS; to listen with a `ca` is to check the clients by it."""
    if not any(isinstance(place, HostAddress) and place.is_secure for place in url.addresses):
        return None
    settings = {name: url.options[name] for name in _TLS_OPTIONS if name in url.options}
    if listening and "server_name" in settings:
        _refuse(shown, "the option 'server_name' is for dialling: a listener has its certificate's")
    if listening and "certificate" not in settings:
        _refuse(shown, "to listen takes certificate=FILE and key=FILE")
    try:
        return TlsSettings(**settings, verify_client=listening and "ca" in settings)
    except ConfigurationError as error:
        _refuse(shown, str(error))


# --- Freelance ------------------------------------------------------------------------------------
def _freelance(url: ServiceUrl, listening: bool, shown: str) -> ServiceUrl:
    """Check what Freelance cannot do, and its options."""
    if url.user is not None:
        _refuse(shown, "Freelance has no user and password")
    if url.service:
        _refuse(shown, "Freelance names no services, so nothing follows the place")
    if url.options.get("model", Model.AGENT) not in tuple(Model):
        _refuse(shown, f"the option 'model' is one of {', '.join(Model)}")
    if listening:
        _check_public(url, shown)
    else:
        if "public" in url.options:
            _refuse(shown, "the option 'public' is for servers: it is what clients dial")
        _check_can_be_dialled(url, shown)
    return url


def _check_public(url: ServiceUrl, shown: str) -> None:
    """A server is known by the endpoint that clients dial, and must be able to tell it."""
    public = url.options.get("public")
    if public is not None:
        if len(url.addresses) > 1:
            _refuse(shown, "the option 'public' names one endpoint, and there are several places")
        try:
            address = parse_address(public, ("tcp",))
        except ConfigurationError as error:
            _refuse(shown, f"the option 'public': {error}")
        if isinstance(address, HostAddress) and address.is_wildcard:
            _refuse(shown, "the option 'public' is one host's: the one that clients dial")
    elif any(isinstance(each, HostAddress) and each.is_wildcard for each in url.addresses):
        _refuse(
            shown, "a server is known by what clients dial: with host * add public=tcp://HOST:PORT"
        )


# --- the Pirates ----------------------------------------------------------------------------------
def _pirate(url: ServiceUrl, listening: bool, shown: str) -> ServiceUrl:
    """Check what the Pirates cannot do; what a queue speaks is for its workers alone."""
    if url.user is not None:
        _refuse(shown, "the Pirates have no user and password (MDP has)")
    if url.service:
        _refuse(shown, "the Pirates name no services, so nothing follows the place (MDP has them)")
    queue = url.options.get("protocol")
    if listening and queue is not None:
        _refuse(shown, "the option 'protocol' is for workers that dial a queue")
    if queue not in (None, *_PIRATE_QUEUES):
        _refuse(shown, f"the option 'protocol' takes {' or '.join(_PIRATE_QUEUES)}")
    if not listening:
        _check_can_be_dialled(url, shown)
    return url


# --- AMQP -----------------------------------------------------------------------------------------
def _amqp(url: ServiceUrl, listening: bool, shown: str) -> ServiceUrl:
    """Take the path for the virtual host, and the service from the options."""
    if listening:
        _refuse(shown, "nobody listens at it but RabbitMQ: clients and workers dial it")
    _check_can_be_dialled(url, shown)
    options = {**url.options, "vhost": url.service or "/"}
    if "key" in options and "pool" not in options:
        _refuse(shown, "the option 'key' belongs to a pool: add pool=NAME")
    if "activity" in options and "pool" not in options:
        _refuse(shown, "the option 'activity' belongs to a pool: add pool=NAME")
    service = options.get("key" if "pool" in options else "queue", "")
    return replace(url, service=service, options=options, tls=_read_amqps_tls(url, shown))


def _read_amqps_tls(url: ServiceUrl, shown: str) -> TlsSettings | None:
    if not any(isinstance(place, HostAddress) and place.is_secure for place in url.addresses):
        return None
    given = url.options.get
    try:
        return TlsSettings(
            given("ca"), given("certificate"), given("certificate_key"), given("server_name")
        )
    except ConfigurationError as error:
        _refuse(shown, str(error))


# --- the other parts ------------------------------------------------------------------------------
def _read_credentials(text: str, shown: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        _refuse(shown, "credentials are user:password, both")
    return _decode(user, shown), _decode(password, shown)


def _read_options(query: str, scheme: _Scheme, shown: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        if name in _TLS_OPTIONS and name not in scheme.options:
            _refuse(shown, f"the option {name!r} is for sp+tls, sp+wss and amqps")
        if name not in scheme.options:
            _refuse(shown, f"there is no option {name!r}; there are {', '.join(scheme.options)}")
        # A key of a pool is any text, also an empty one.
        is_lacking = not value and not (name == "key" and scheme.protocol in _POOLED)
        if name in options or is_lacking:
            _refuse(shown, f"the option {name!r} takes one value")
        options[name] = _decode(value, shown)
    return options


def _only_one(path: str, option: str, shown: str) -> str:
    if path and option and path != option:
        _refuse(shown, f"it names two services, {path!r} and {option!r}")
    return path or option


def _decode(text: str, shown: str) -> str:
    if _NO_ESCAPE.search(text):
        _refuse(shown, "write %25 for a % that belongs to a name or a password")
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        _refuse(shown, "what its %xx stand for is not UTF-8")


def _refuse(shown: str, why: str) -> NoReturn:
    raise ConfigurationError(f"cannot read the URL {shown!r}: {why}")
