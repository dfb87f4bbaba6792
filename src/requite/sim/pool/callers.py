"""Callers publish each request until RabbitMQ confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from requite.protocols.amqp.topology import Pool
from requite.sim.pool.ledger import REPLIES, Request
from requite.sim.pool.node import Node
from requite.sim.pool.rabbit import Refused, message

if TYPE_CHECKING:
    from requite.sim.pool.knobs import Task
    from requite.sim.pool.rabbit import Connection

_AGAIN_S: Final = 0.5


class Caller(Node):
    """A caller. It keeps each request until RabbitMQ has confirmed it (at least once)."""

    def begun(self) -> None:
        """Start without unconfirmed requests."""
        self._unconfirmed: dict[int, Request] = {}
        self._names = Pool("core")

    def call(
        self,
        number: int,
        key: str,
        task: Task,
        *,
        expires_s: float | None = None,
        silent: bool = False,
    ) -> Request:
        """Publish a request; return its record."""
        now = self.stage.world.now
        request = Request(number, key, task, self.name, silent, expires_s, now)
        self.stage.ledger.requests[number] = request
        self.stage.remark(self.name, f"asks: {request}")
        self._unconfirmed[number] = request
        self._send(request)
        return request

    def connected(self, connection: Connection) -> None:
        """Publish the unconfirmed requests again."""
        for request in [*self._unconfirmed.values()]:
            self._send(request)

    def _send(self, request: Request) -> None:
        if request.number not in self._unconfirmed:
            return
        published = message(
            request.key,
            {},
            number=request.number,
            reply_to="" if request.silent else REPLIES + self.name,
            correlation_id=request.correlation_id,
            expires_s=request.expires_s,
        )
        exchange = self._names.requests_exchange
        self.ask(
            lambda: self.stage.rabbit.publish(exchange, published),
            lambda answer: self._confirmed(request, answer),
        )

    def _confirmed(self, request: Request, answer: Any) -> None:
        if isinstance(answer, Refused):  # no manager has declared the exchange yet
            self.later(_AGAIN_S, self._send, request)
            return
        if request.number in self._unconfirmed:
            del self._unconfirmed[request.number]
            self.stage.ledger.confirmed(request, answer)
