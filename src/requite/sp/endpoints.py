"""From SP URLs to endpoints: for each address, the framing that is spoken there.

Who listens and who dials is independent of who asks and who answers: each role may do both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Final

from requite.errors import ConfigurationError
from requite.framing import Framing, Limits, SpStream
from requite.framing.websocket import SpWebSocket
from requite.protocols.scalability.policy import Place
from requite.protocols.scalability.wire import DRAFT_REP, DRAFT_REQ, REP, REQ
from requite.shell.keeping import Endpoint
from requite.shell.link import LinkLimits
from requite.transport.address import WS_PORT, WSS_PORT, Address, IpcAddress, WsAddress
from requite.url import ServiceUrl

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""How long a peer may take for its header; as long as nng gives it."""

LINK_LIMITS: Final = LinkLimits(handshake_timeout_s=HANDSHAKE_TIMEOUT_S)


_UNUSED: Final = {
    "REQ": ("resend",),
    "REP": ("priority", "weight", "resend"),
}
_WHY: Final = {
    "resend": "only clients send again; give it to `Client`, or to `Req(resend=...)`",
    "priority": "it says which channel a request goes to, so it is for who asks",
    "weight": "it says how many requests a channel gets, so it is for who asks",
}


class Role(Enum):
    """What an endpoint is."""

    REQ = "REQ"
    REP = "REP"

    def types(self, draft: bool) -> tuple[int, int]:
        """Return the endpoint types that it announces and that it takes: those in practice, or
        those of the draft."""
        req, rep = (DRAFT_REQ, DRAFT_REP) if draft else (REQ, REP)
        return (req, rep) if self is Role.REQ else (rep, req)


def refuse_unused(urls: Iterable[ServiceUrl], role: Role) -> None:
    """Raise `ConfigurationError` for options that would have no effect at an end of this role."""
    for url in urls:
        for name in _UNUSED[role.value]:
            if name in url.options:
                raise ConfigurationError(
                    f"the option {name!r} means nothing here ({url}): {_WHY[name]}"
                )


def check_whole(**settings: object) -> None:
    """Raise `ConfigurationError` for a setting that is no whole number; `policy` checks ranges."""
    for name, value in settings.items():
        if not isinstance(value, int):
            raise ConfigurationError(f"{name} is a whole number, not {value!r}")


def to_dial(
    urls: Iterable[ServiceUrl], role: Role, limits: Limits, side: str = ""
) -> list[Endpoint]:
    """Make the endpoints to stay connected to. `side` is that of a device.

    Raises `ConfigurationError` for settings of TLS with which nobody could be dialled.
    """
    for url in urls:
        if url.tls is not None:
            url.tls.check_dialling()
    return [
        _endpoint(url, address, role, limits, side, dials=True)
        for url in urls
        for address in url.addresses
    ]


def to_listen(
    urls: Iterable[ServiceUrl], role: Role, limits: Limits, side: str = ""
) -> list[Endpoint]:
    """Make the endpoints to listen at; raises as `to_dial` does."""
    for url in urls:
        if url.tls is not None:
            url.tls.check_listening()
    return [
        _endpoint(url, address, role, limits, side, dials=False)
        for url in urls
        for address in url.addresses
    ]


def _endpoint(
    url: ServiceUrl, address: Address, role: Role, limits: Limits, side: str, *, dials: bool
) -> Endpoint:
    own, peer = role.types(url.draft_ids)
    make_framing: Callable[[], Framing]
    if isinstance(address, WsAddress):
        host = _host_header(address) if dials else ""
        make_framing = partial(
            SpWebSocket, own, peer, is_client=dials, host=host, path=address.path, limits=limits
        )
    else:
        in_band = isinstance(address, IpcAddress)
        make_framing = partial(SpStream, own, peer, in_band=in_band, limits=limits)
    place = Place(side, url.priority, url.weight)
    return Endpoint(address, make_framing, place, url.tls)


def _host_header(address: WsAddress) -> str:
    """Return the host for HTTP, with a port that is not the scheme's own (RFC 6455, 4.1)."""
    is_default = address.port == (WSS_PORT if address.secure else WS_PORT)
    return address.authority.rpartition(":")[0] if is_default else address.authority
