"""`GatewayServer`: a gateway with its own HTTP server and client, for `requite gateway`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from requite import __build__, __version__
from requite.access.exposure import check_exposure
from requite.client import AsyncClient
from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.framing.web_hosts import canonical
from requite.gateway.app import Gateway
from requite.gateway.meter import Meter
from requite.gateway.policy import KEPT_FOR_DESCRIPTIONS, GatewayPolicy
from requite.gateway.problems import Problem
from requite.metrics.process import LoopLag, Process, of_process
from requite.metrics.reading import SharedReading
from requite.shell import clock
from requite.speaks.registry import parse_url
from requite.transport.address import Address, TcpAddress, TlsAddress, is_local
from requite.web.answers import answer_early
from requite.web.connection import REQUEST_S
from requite.web.hosts import Hosts
from requite.web.place import Place
from requite.web.server import HttpServer

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from requite.access.guard import AccessOption
    from requite.transport.tls import TlsSettings

DRAIN_TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 2048
_METRICS: Final = "/metrics"
_PROCESS: Final = Process(__version__, __build__, "gateway")
_LAST_S: Final = 1.0
"""For how long a stopped gateway sends the last answers, such as those of cancelled calls."""
_HOLD_BACK: Final = 0.05
_LATE: Final = Problem("LateBody", f"no whole body within {REQUEST_S:g} s; it has not run")
_log = logging.getLogger("requite.gateway")


@dataclass(frozen=True, slots=True)
class _Listened:
    """For `check_exposure`. A certificate of the client says nothing about its user here."""

    address: Address
    tls: None = None


class GatewayServer:
    """Serves a gateway at `place`.

    `hosts` are further names in the field `Host` of requests. The other arguments are those of
    `Gateway`. Raises `ConfigurationError` for settings that cannot work, and for an address that
    other machines reach without an access file, or without TLS, unless `insecure`.

    It also serves `/metrics` for Prometheus; with an access file to users who may call any method.
    """

    def __init__(
        self,
        url: str,
        place: Place,
        *,
        services: Sequence[str] = (),
        access: AccessOption | None = None,
        insecure: bool = False,
        hosts: Sequence[str] = (),
        tls: TlsSettings | None = None,
        policy: GatewayPolicy | None = None,
        dialect: str | None = None,
        drain_timeout: float = DRAIN_TIMEOUT_S,
    ) -> None:
        self._place: Final = place
        self._tls: Final = tls
        self._drain_timeout_s: Final = drain_timeout
        policy = policy or GatewayPolicy()
        for each in hosts:
            if canonical(each) is None:
                raise ConfigurationError(f"--host: {each!r} is not a host without a port")
        address = (TcpAddress if tls is None else TlsAddress)(place.host, place.port)
        check_exposure([_Listened(address)], is_guarded=access is not None, insecure=insecure)
        if access is not None and tls is None and not (insecure or is_local(address)):
            raise ConfigurationError(
                f"tokens and passwords would be readable on their way to {address}: give"
                " --tls-certificate, or listen at 127.0.0.1 behind a proxy with TLS. `--insecure`"
                " accepts it"
            )
        self._client: Final = AsyncClient(
            url,
            slots=policy.concurrency + KEPT_FOR_DESCRIPTIONS,
            dialect=dialect,
            message_size_max=max(Limits().message_size_bytes_max, policy.body_size_max),
            hold_back=_HOLD_BACK if parse_url(url).protocol == "mdp" else 0.0,
        )
        self.gateway: Final = Gateway(self._client, services=services, access=access, policy=policy)
        self._meter: Final = Meter(self.gateway)
        self._lag: Final = LoopLag()
        self._metrics: Final = SharedReading(self._read_metrics)
        self._hosts: Final = Hosts((place.host, *hosts))
        self._server: Final = HttpServer(
            self._app,
            logger="requite.gateway",
            connections_max=max(CONNECTIONS_MAX, 2 * policy.concurrency),
            late=_LATE.response(""),
        )

    @property
    def url(self) -> str:
        """The URL, with the port that was bound; empty before `start`."""
        return self._server.url

    async def start(self) -> None:
        """Listen. Raises `TransportError` if the address cannot be bound."""
        await self.gateway.__aenter__()
        await self._server.listen(self._place.host, self._place.port, "--http", self._tls)
        await self._client.__aenter__()
        self._lag.start()

    async def drain(self) -> None:
        """Answer new requests with 503, finish those in progress, and close.

        Calls that take longer than `drain_timeout` are cancelled. Connections whose clients have
        not read their answers then are closed a second later.
        """
        until = clock.now() + self._drain_timeout_s
        draining = asyncio.ensure_future(self.gateway.drain())
        await asyncio.wait((draining,), timeout=self._drain_timeout_s)
        if not draining.done():
            _log.warning("%d calls are cancelled", self.gateway.in_progress)
        await self._client.close()  # ends the calls
        await draining
        await self._close(max(until - clock.now(), _LAST_S))

    async def close(self) -> None:
        """Stop at once."""
        await self._client.close()
        await self._close(_LAST_S)

    async def _close(self, timeout_s: float) -> None:
        await self._server.close(timeout_s)
        self._lag.stop()
        await self._metrics.close()
        await self.gateway.close()

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI), unless it is one of a foreign web page."""
        refusal: Problem | None = None
        if scope["type"] == "http":
            refusal = self._refusal(scope)
        if refusal is not None:
            await answer_early(refusal.response(""), receive, send)
        elif scope["type"] == "http" and scope["path"] == _METRICS and scope["method"] == "GET":
            await (await self._answer_metrics(Request(scope, receive)))(scope, receive, send)
        else:
            await self._meter(scope, receive, send)

    async def _answer_metrics(self, request: Request) -> Response:
        try:
            await self.gateway.check_user(request)
        except Problem as problem:
            return problem.response("")
        return await self._metrics.response()

    async def _read_metrics(self) -> Sequence[Collector]:
        flaw = await self.gateway.flaw()
        families = of_process(_PROCESS, self._lag, is_ready=not flaw)
        return [*families, *self._meter.read(self.gateway.in_progress)]

    def _refusal(self, scope: Scope) -> Problem | None:
        if (host := self._hosts.foreign_host(scope)) is not None:
            text = f"{host} is not a host of this gateway: add it with --host"
            return Problem("ForeignHost", f"{text}; the request has not run")
        if (origin := self._hosts.foreign_origin(scope)) is not None:
            text = f"web pages of {origin} may not use this gateway; the request has not run"
            return Problem("ForeignPage", text)
        if self._hosts.is_foreign_fetch(scope, is_entry=scope["method"] == "GET"):
            text = "web pages of other sites may not use this gateway, but link to it"
            return Problem("ForeignPage", f"{text}; the request has not run")
        return None
