"""SP, the scalability protocols: REQ and REP, without a broker.

    sp+tcp://a:7000,b:7000                      connects to both
    sp+ipc:///run/service.sock                  over a Unix socket
    sp+tls://host:7000?ca=/etc/requite/ca.pem   over TLS; also certificate=, key=, server_name=
    sp+ws://host/path, sp+wss://host/path       over a WebSocket; port 80 and 443 by default
    inproc://name                               within one event loop; or sp+inproc

Options: `priority` (1, the first, to 16) and `weight` (1 to 1000) choose among connections;
`resend` is in seconds, or off; `ids=draft` selects the endpoint types of the draft; `origins` are
those of web pages that may connect to a listener of WebSockets, separated by commas.

Clients and workers may both dial and listen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from math import isfinite
from typing import Final, Literal

from requite.errors import ConfigurationError
from requite.framing import Framing, Limits, SpStream
from requite.framing.web_hosts import canonical_origin
from requite.framing.websocket import SpWebSocket
from requite.protocols.scalability.policy import RETRY_DEFAULT, PipeOptions, RepPolicy, ReqPolicy
from requite.protocols.scalability.wire import DRAFT_REP, DRAFT_REQ, HOPS_DEFAULT, IDS, REP, REQ
from requite.request import RetryPolicy
from requite.shell import entropy
from requite.shell.connections import Connections, Endpoint
from requite.shell.link import LinkLimits
from requite.speaks.endpoints import Endpoints
from requite.speaks.plans import (
    BODIES,
    CAPACITY_DEFAULT,
    NO_DIALECTS,
    NO_HOLD_BACK,
    NO_LEASES,
    Carries,
    ClientPlan,
    ClientSettings,
    PlainTraits,
    S,
    ServicePlan,
    WorkerSettings,
    refuse_given,
)
from requite.speaks.tls import check_files, read_tls, tls_of
from requite.speaks.url import (
    TLS_OPTIONS,
    Places,
    Scheme,
    ServiceUrl,
    check_can_be_dialled,
    read_inproc,
    read_ipc,
    read_tcp,
    refuse,
    split_authority,
)
from requite.transport.address import (
    WS_PORT,
    WSS_PORT,
    Address,
    IpcAddress,
    WsAddress,
    parse_ws,
)

PRIORITY_MAX: Final = 16
WEIGHT_MAX: Final = 1000

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds that a peer may take for its header, as in nng."""

LINK_LIMITS: Final = LinkLimits(handshake_timeout_s=HANDSHAKE_TIMEOUT_S)


_UNUSED: Final = {
    "REQ": ("resend",),
    "REP": ("priority", "weight", "resend"),
}
_WHY: Final = {
    "resend": "only clients resend (`Client`, `Req(resend=...)`)",
    "priority": "only clients and the back of a device use it to choose a connection",
    "weight": "only clients and the back of a device use it to distribute requests",
}
_ABSENT_FOR_CLIENTS: Final = {
    "dialect": NO_DIALECTS,
    "hold_back": NO_HOLD_BACK,
    "heartbeat": "no heartbeats (MDP 0.3 has)",
}
_ABSENT_FOR_WORKERS: Final = {
    "heartbeat": "no heartbeats (MDP has); a client resends when its connection is lost",
    "dialect": NO_DIALECTS,
    "handler_timeout": NO_LEASES,
}


# --- URLs -----------------------------------------------------------------------------------------
def _read_ws(body: str, shown: str) -> Places:
    return _read_web(body, shown, secure=False)


def _read_wss(body: str, shown: str) -> Places:
    return _read_web(body, shown, secure=True)


def _read_web(body: str, shown: str, *, secure: bool) -> Places:
    hosts, path = split_authority(body, shown)
    places = (parse_ws(host, f"/{path}", shown, secure=secure) for host in hosts)
    return Places(tuple(places), "")


_OPTIONS: Final = ("priority", "weight", "resend", "ids")
_SECURE_OPTIONS: Final = _OPTIONS + TLS_OPTIONS
_ORIGINS: Final = ("origins",)
SCHEMES: Final = {
    "sp+tcp": Scheme(read_tcp, _OPTIONS),
    "sp+ipc": Scheme(read_ipc, _OPTIONS),
    "sp+tls": Scheme(read_tls, _SECURE_OPTIONS),
    "sp+ws": Scheme(_read_ws, _OPTIONS + _ORIGINS),
    "sp+wss": Scheme(_read_wss, _SECURE_OPTIONS + _ORIGINS),
    "sp+inproc": Scheme(read_inproc, _OPTIONS),
    "inproc": Scheme(read_inproc, _OPTIONS),
}


def check_url(url: ServiceUrl, *, listening: bool, shown: str) -> ServiceUrl:
    """Check the options. Raises `ConfigurationError` for what SP does not support."""
    if url.user is not None:
        refuse(shown, "SP has no user name and password; sp+tls checks certificates")
    if url.service:
        refuse(shown, "SP has no service names, so nothing may follow the address")
    if not listening:
        check_can_be_dialled(url, shown)
    _check_whole_option("priority", url, PRIORITY_MAX, shown)
    _check_whole_option("weight", url, WEIGHT_MAX, shown)
    _check_resend(url, shown)
    if url.options.get("ids", "draft") != "draft":
        refuse(
            shown,
            "the option 'ids' must be draft; without it, the numbers are those of nng and nanomsg",
        )
    _check_origins(url, listening, shown)
    peer_query = "?ids=draft" if listening and _has_draft_ids(url) else ""
    return replace(url, tls=tls_of(url, listening=listening, shown=shown), peer_query=peer_query)


def _check_whole_option(name: str, url: ServiceUrl, most: int, shown: str) -> None:
    value = url.options.get(name, "1")
    is_number = value.isascii() and value.isdecimal() and len(value) <= len(str(most))
    if not is_number or not 1 <= int(value) <= most:
        refuse(shown, f"the option {name!r} must be a whole number from 1 to {most}")


def _check_resend(url: ServiceUrl, shown: str) -> None:
    try:
        seconds = resend_of(url)
    except ValueError:
        seconds = 0.0
    if isinstance(seconds, float) and not (isfinite(seconds) and seconds > 0):
        refuse(shown, "the option 'resend' must be a positive number of seconds, or off")


def _check_origins(url: ServiceUrl, listening: bool, shown: str) -> None:
    if "origins" in url.options and not listening:
        refuse(shown, "the option 'origins' is for listening: only browsers send an origin")
    for origin in _listed_origins(url):
        if canonical_origin(origin) is None:
            refuse(shown, f"{origin!r} is not an origin, such as https://HOST or http://HOST:PORT")


def origins_of(url: ServiceUrl) -> tuple[str, ...]:
    """Return the origins of web pages that may connect, in canonical form."""
    return tuple(origin for each in _listed_origins(url) if (origin := canonical_origin(each)))


def _listed_origins(url: ServiceUrl) -> list[str]:
    return url.options["origins"].split(",") if "origins" in url.options else []


def resend_of(url: ServiceUrl) -> float | Literal["off"] | None:
    """Return the option `resend`: seconds, "off", or None if it is not given."""
    value = url.options.get("resend")
    return None if value is None else "off" if value == "off" else float(value)


def _has_draft_ids(url: ServiceUrl) -> bool:
    """Whether the endpoint types are 16 and 17, as in the draft, instead of 48 and 49."""
    return "ids" in url.options


# --- places ---------------------------------------------------------------------------------------
class SpRole(Enum):
    """The role of an endpoint."""

    REQ = "REQ"
    REP = "REP"

    def types(self, draft: bool) -> tuple[int, int]:
        """Return the endpoint type that the role announces and the one that it accepts, as in
        practice or as in the draft."""
        req, rep = (DRAFT_REQ, DRAFT_REP) if draft else (REQ, REP)
        return (req, rep) if self is SpRole.REQ else (rep, req)


def refuse_unused(urls: Iterable[ServiceUrl], role: SpRole) -> None:
    """Raise `ConfigurationError` for options that have no effect in this role."""
    for url in urls:
        for name in _UNUSED[role.value]:
            if name in url.options:
                raise ConfigurationError(
                    f"the URL option {name!r} has no effect here ({url}); remove it: {_WHY[name]}"
                )


def check_whole(**settings: object) -> None:
    """Raise `ConfigurationError` for a setting that is not an integer; policies check ranges."""
    for name, value in settings.items():
        if not isinstance(value, int):
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}")


def to_dial(
    urls: Iterable[ServiceUrl], role: SpRole, limits: Limits, side: str = ""
) -> list[Endpoint]:
    """Make the endpoints of persistent connections. `side`: a device's front or back.

    Raises `ConfigurationError` for TLS settings that cannot be used to dial.
    """
    for url in urls:
        check_files(url.tls, listening=False)
    return [
        _endpoint(url, address, role, limits, side, dials=True)
        for url in urls
        for address in url.addresses
    ]


def to_listen(
    urls: Iterable[ServiceUrl], role: SpRole, limits: Limits, side: str = ""
) -> list[Endpoint]:
    """Make the endpoints to listen at; raises as `to_dial` does."""
    for url in urls:
        check_files(url.tls, listening=True)
    return [
        _endpoint(url, address, role, limits, side, dials=False)
        for url in urls
        for address in url.addresses
    ]


def _endpoint(
    url: ServiceUrl, address: Address, role: SpRole, limits: Limits, side: str, *, dials: bool
) -> Endpoint:
    own, peer = role.types(_has_draft_ids(url))
    make_framing: Callable[[], Framing]
    if isinstance(address, WsAddress):
        make_framing = partial(
            SpWebSocket,
            own,
            peer,
            is_client=dials,
            host=_host_header(address) if dials else address.host,
            path=address.path,
            origins=origins_of(url),
            limits=limits,
        )
    else:
        in_band = isinstance(address, IpcAddress)
        make_framing = partial(SpStream, own, peer, in_band=in_band, limits=limits)
    priority, weight = (int(url.options.get(name, "1")) for name in ("priority", "weight"))
    place = PipeOptions(side, priority, weight)
    return Endpoint(address, make_framing, place, url.tls)


def _host_header(address: WsAddress) -> str:
    """Return the Host header, with the port unless it is the scheme's default (RFC 6455, 4.1)."""
    is_default = address.port == (WSS_PORT if address.secure else WS_PORT)
    return address.authority.rpartition(":")[0] if is_default else address.authority


# --- clients --------------------------------------------------------------------------------------
_TRAITS: Final = PlainTraits("SP", "the address of its service", frames_max=1)


def carries(_endpoints: Endpoints, _dialect: str | None) -> Carries:
    """Return that messages carry only bodies."""
    return BODIES


def client_plan(endpoints: Endpoints, settings: ClientSettings) -> ClientPlan:
    """Plan a client that dials and listens. Raises `ConfigurationError`."""
    from requite.protocols.scalability.req import ScalabilityClient

    refuse_given(settings, "SP has", _ABSENT_FOR_CLIENTS)
    resend = _resend_of(endpoints.dials + endpoints.binds)
    if resend is not None and settings.retry is not None:
        raise ConfigurationError(
            "the URL option 'resend' and `retry` both set when a request is resent; use one of them"
            " (resend=5 is attempt_timeout=5 without a limit of attempts, resend=off is attempts=1)"
        )
    policy = ReqPolicy(slots=settings.slots, retry=_retry(settings.retry, resend))
    limits = Limits.for_bodies(settings.message_size_max)
    return ClientPlan(
        lambda origin, chronicle: ScalabilityClient(
            policy,
            first_id=entropy.source.randrange(IDS),
            origin=origin,
            chronicle=chronicle,
        ),
        Connections(
            keep=to_dial(endpoints.dials, SpRole.REQ, limits),
            listen=to_listen(endpoints.binds, SpRole.REQ, limits),
            limits=LINK_LIMITS,
        ),
        _TRAITS,
        holds=True,
    )


def _retry(given: RetryPolicy | None, resend: float | Literal["off"] | None) -> RetryPolicy:
    """Return the policy from `retry` or from the URLs' `resend`; at most one of them is given."""
    if resend == "off":
        return RetryPolicy(attempts=1)
    if resend is not None:
        return replace(RETRY_DEFAULT, attempt_timeout=resend)
    return given or RETRY_DEFAULT


def _resend_of(urls: Iterable[ServiceUrl]) -> float | Literal["off"] | None:
    """Return the URLs' option `resend`; it applies to the client, so all must be equal."""
    found = {resend_of(url) for url in urls} - {None}
    if len(found) > 1:
        raise ConfigurationError(
            "the URLs have different values of the option 'resend'; give all the same one"
        )
    return found.pop() if found else None


# --- workers --------------------------------------------------------------------------------------
def service_plans(
    endpoints: Endpoints, services: Sequence[S], settings: WorkerSettings
) -> list[ServicePlan[S]]:
    """Plan the worker. Raises `ConfigurationError`."""
    from requite.protocols.scalability.rep import ScalabilityWorker

    _check_worker(services, settings)
    refuse_unused(endpoints.dials + endpoints.binds, SpRole.REP)
    [service] = services
    capacity = CAPACITY_DEFAULT if settings.capacity is None else settings.capacity
    hops = HOPS_DEFAULT if settings.hops is None else settings.hops
    check_whole(capacity=capacity, hops=hops)
    policy = RepPolicy(
        capacity=capacity,
        hops=hops,
        reply_size_max=settings.message_size_max,
    )
    engine = ScalabilityWorker(
        policy,
        service=service.name,
        first_id=entropy.source.randrange(IDS),
        instance=settings.name,
        chronicle=settings.chronicle,
    )
    limits = Limits.for_bodies(settings.message_size_max)
    connections = Connections(
        keep=to_dial(endpoints.dials, SpRole.REP, limits),
        listen=to_listen(endpoints.binds, SpRole.REP, limits),
        limits=LINK_LIMITS.for_messages(settings.message_size_max),
    )
    return [
        ServicePlan(
            service, engine, connections, capacity, settings.threads or capacity, 1, holds=True
        )
    ]


def _check_worker(services: Sequence[S], settings: WorkerSettings) -> None:
    if len(services) > 1:
        raise ConfigurationError(
            "SP has no service names, so a worker has one service; start a worker for each, or use"
            " MDP"
        )
    refuse_given(settings, "SP has", _ABSENT_FOR_WORKERS)
