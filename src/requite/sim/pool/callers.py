"""Callers: programs with a real client, and programs that are not requite's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from requite.client.aio import AsyncClient
from requite.errors import CallError, NoService, TransportError
from requite.protocols.amqp.properties import Properties, encode_properties
from requite.request import Reply
from requite.shell import clock
from requite.sim.pool.ledger import Request
from requite.sim.pool.member import Member

if TYPE_CHECKING:
    from requite.sim.pool.knobs import Task
    from requite.sim.pool.stage import PoolStage

_AGAIN_S: Final = 0.5


class Caller(Member):
    """A caller. It repeats each call until a worker or a manager has answered it, or its time is
    up."""

    client: AsyncClient

    def __init__(self, name: str, stage: PoolStage) -> None:
        super().__init__(name, stage, self._main)

    async def _main(self) -> None:
        config = self.stage.config
        url = f"{config.rabbitmq.url}?pool={config.pool.name}"
        async with AsyncClient(url, timeout=None) as self.client:
            await asyncio.get_running_loop().create_future()

    def call(
        self,
        number: int,
        key: str,
        task: Task,
        *,
        expires_s: float | None = None,
        silent: bool = False,
    ) -> Request:
        """Make a call; return its record. A `silent` request, which has no reply-to, is one of
        another AMQP client."""
        now = self.stage.world.now
        request = Request(number, key, task, self.name, silent, expires_s, now)
        self.stage.ledger.requests[number] = request
        self.stage.remark(self.name, f"asks: {request}")
        if silent:
            publish_plainly(self.stage, request)
        else:
            self.turn(self._start, request)
        return request

    def _start(self, request: Request) -> None:
        self.loop.create_task(self._ask(request))

    async def _ask(self, request: Request) -> None:
        self.stage.ledger.ended(request, await self._outcome(request))

    async def _outcome(self, request: Request) -> Reply | CallError:
        expires_s = request.expires_s
        until = None if expires_s is None else clock.now() + expires_s
        while True:
            timeout_s = None if until is None else until - clock.now()
            try:
                return await self.client.call(request.body, service=request.key, timeout=timeout_s)
            except (NoService, TransportError) as error:  # no manager has declared the exchange yet
                await asyncio.sleep(_AGAIN_S)
                if until is not None and until <= clock.now():
                    return error
            except CallError as error:
                return error


def publish_plainly(stage: PoolStage, request: Request, reply_to: str = "") -> None:
    """Publish a request as another AMQP client would, once RabbitMQ and the exchange are there."""
    exchange, rabbit = stage.store.names.requests_exchange, stage.rabbit
    if not rabbit.alive or exchange not in stage.store.exchanges:
        stage.world.after(_AGAIN_S, publish_plainly, stage, request, reply_to)
        return
    expires_s, body = request.expires_s, request.body
    properties = Properties(
        f"{request.number:016x}",
        reply_to,
        f"{request.number:032x}",
        "" if expires_s is None else str(round(1000 * expires_s)),
        persistent=True,
    )
    header = encode_properties(properties, len(body))
    rabbit.perform(lambda: rabbit.hub.publishing.inject(request.key, header, body, exchange))
