"""POST /SERVICE.METHOD: a call of a typed service for an HTTP request.

Other HTTP methods are refused after the same checks: what the user may not call, or does not exist,
is answered as for POST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from requite.client.acting import acting_for
from requite.gateway.bodies import (
    BYTES_TYPE,
    JSON_TYPE,
    Bodies,
    Body,
    check_coding,
    check_type,
    event_data_of,
    json_of,
    payload_of,
)
from requite.gateway.options import Options, read_options
from requite.gateway.problems import Problem, of_error
from requite.gateway.streams import Outbox
from requite.shell import clock
from requite.typed.schema import is_bytes
from requite.web.answers import answer_early

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from requite.client import AsyncClient
    from requite.gateway.catalog import Catalog, Entry
    from requite.gateway.policy import GatewayPolicy
    from requite.gateway.users import Users
    from requite.principal import Principal
    from requite.typed.described import DescribedMethod

T = TypeVar("T")

_CLIENT_GONE: Final = 499
"""The status of an answer that has no reader any more; no client sees it."""

_CHANGED: Final = ("BadRequest", "NoMethod", "BadReply")
"""Failures that may mean that the service has changed since it described itself."""


class Calls:
    """Makes calls for requests, within the limits of a policy."""

    def __init__(
        self, client: AsyncClient, catalog: Catalog, users: Users, policy: GatewayPolicy
    ) -> None:
        self._client: Final = client
        self._catalog: Final = catalog
        self._users: Final = users
        self._policy: Final = policy
        self._bodies: Final = Bodies()
        self._in_progress = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.is_draining = False

    @property
    def in_progress(self) -> int:
        """How many requests are being answered."""
        return self._in_progress

    async def until_idle(self) -> None:
        """Wait until no request is in progress."""
        await self._idle.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        request = Request(scope, receive)
        with Body(self._bodies, self._policy) as body:
            try:
                self._enter()
                try:
                    await self._answer(request, body, send)
                finally:
                    self._leave()
            except Problem as problem:
                response = problem.response(scope.get("root_path", ""))
                if body.is_read:
                    await response(scope, receive, send)
                else:
                    await answer_early(response, receive, send)
            except ClientDisconnect:
                await Response(status_code=_CLIENT_GONE)(scope, receive, send)  # for the metrics

    def _enter(self) -> None:
        if self.is_draining:
            raise Problem("Draining", "the gateway is being stopped; the request has not run")
        if self._in_progress >= self._policy.concurrency:
            raise Problem(
                "Overloaded",
                f"{self._policy.concurrency} requests are in progress, the maximum of this gateway;"
                " the request has not run",
            )
        self._in_progress += 1
        self._idle.clear()

    def _leave(self) -> None:
        self._in_progress -= 1
        if not self._in_progress:
            self._idle.set()

    async def _answer(self, request: Request, body: Body, send: Send) -> None:
        address = request.path_params["address"]
        arrived = clock.now()
        principal = await self._users.principal_of(request)
        if not principal.may("call", address):
            text = f"{principal} has no right to call {address!r}; the request has not run"
            raise Problem("Denied", text)
        with self._users.quotas.counted(principal, body):
            await self._call(request, body, send, principal, arrived)

    async def _call(
        self, request: Request, body: Body, send: Send, principal: Principal, arrived: float
    ) -> None:
        headers, address = request.headers, request.path_params["address"]
        options = read_options(headers, self._policy, principal.name, arrived)
        body.check_length(headers.get("content-length", ""))
        check_coding(headers.get("content-encoding", ""))
        try:
            async with asyncio.timeout(options.until - clock.now()):
                entry, method = await self._catalog.find(address)
        except TimeoutError:
            text = f"the service of {address!r} did not describe itself in time; it has not run"
            raise Problem("CallTimeout", text) from None
        if request.method != "POST":
            text = (
                f"{request.method} of {address} is not possible: methods are called with POST"
                " /SERVICE.METHOD; it has not run"
            )
            raise Problem("BadMethod", text, headers={"Allow": "POST"})
        check_type(headers, method)
        data = await body.read(request.receive)
        client = acting_for(self._client, principal.name) if principal.name else self._client
        try:
            await self._perform(client, request, send, data, options, entry, method)
        except Problem as problem:
            if problem.error not in _CHANGED:
                raise
            newer = await self._newer(entry, options.until)
            changed = newer.method(address)
            is_same = newer.described.codec == entry.described.codec and changed == method
            if problem.may_have_executed or changed is None or is_same:
                raise
            check_type(headers, changed)
            await self._perform(client, request, send, data, options, newer, changed)

    async def _newer(self, entry: Entry, until: float) -> Entry:
        try:
            async with asyncio.timeout(until - clock.now()):
                return await self._catalog.newer(entry)
        except (Problem, TimeoutError):  # the failure of the call says more
            return entry

    async def _perform(
        self,
        client: AsyncClient,
        request: Request,
        send: Send,
        data: bytes,
        options: Options,
        entry: Entry,
        method: DescribedMethod,
    ) -> None:
        """Make one call, and answer the request. Raises `Problem` before any byte is sent."""
        payload = payload_of(data, method, entry.described)
        codec = entry.described.codec
        declared = {error.name for error in method.errors}
        arguments = options.arguments(clock.now())
        if method.partial:
            root = request.scope.get("root_path", "")
            outbox = Outbox(self._policy.stream_size_max, root)
            parts = client.stream(payload, service=method.address, **arguments)
            filling = asyncio.create_task(
                outbox.fill(
                    parts,
                    lambda part: event_data_of(part, method, codec),
                    lambda error: of_error(error, declared),
                )
            )
            try:
                await _unless_gone(request, outbox.send(send))
            finally:
                filling.cancel()
                await asyncio.wait((filling,))
            return
        try:
            reply = await _unless_gone(
                request, client.call(payload, service=method.address, **arguments)
            )
        except ClientDisconnect:
            raise
        except Exception as error:
            raise of_error(error, declared) from error
        answer = json_of(reply.body, method, codec, reply.attempts)
        kind = BYTES_TYPE if is_bytes(method.output) else JSON_TYPE
        fields = {"Content-Type": kind, "Cache-Control": "no-store"}
        await Response(answer, headers=fields)(request.scope, request.receive, send)


async def _unless_gone(request: Request, doing: Coroutine[Any, Any, T]) -> T:
    """Return the result of `doing`; cancel it when the client disconnects. Raises
    `ClientDisconnect`."""
    done = asyncio.ensure_future(doing)
    gone = asyncio.ensure_future(_until_gone(request))
    try:
        await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise ClientDisconnect
    finally:
        for each in (done, gone):
            each.cancel()
        await asyncio.wait((done, gone))
    return done.result()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
