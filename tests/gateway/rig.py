"""A gateway on a real broker with real workers, and HTTP clients of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
from tests.typed.shop import Order, Quote, served

import requite
from requite.gateway import Gateway, GatewayPolicy
from requite.gateway.server import GatewayServer
from requite.web.place import Place

JSON = {"Content-Type": "application/json"}
WAIT_S = 20.0


class Held:
    """A service whose methods wait until they are let go, and a record of what they did."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started: asyncio.Queue[float | None] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        self.sent = 0
        self.service = service = requite.Service("held")
        service.method(self.wait)
        service.method(self.tick)
        service.method(self.flood)

    async def wait(self, order: Order, context: requite.Context) -> Quote:
        """Wait."""
        self.started.put_nowait(context.remaining_s)
        await self._until_let_go("wait")
        return Quote(order.count)  # type: ignore[arg-type]

    async def tick(self, order: Order, context: requite.Context) -> AsyncIterator[int]:
        """Yield numbers, then wait."""
        self.started.put_nowait(context.remaining_s)
        for number in range(order.count):
            yield number
        await self._until_let_go("tick")
        yield order.count

    async def flood(self, order: Order) -> AsyncIterator[str]:
        """Yield texts of 64 KiB without end."""
        try:
            while True:
                self.sent += 1
                yield "x" * (64 << 10)
                await asyncio.sleep(0)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.put_nowait("flood")
            raise

    async def _until_let_go(self, name: str) -> None:
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(name)
            raise


class Answer(NamedTuple):
    """An answer, and its body as JSON."""

    status: int
    said: Any
    headers: httpx.Headers


class Door:
    """An HTTP client of a gateway."""

    def __init__(self, http: httpx.AsyncClient, gateway: Gateway, client: requite.AsyncClient):
        self.http = http
        self.gateway = gateway
        self.client = client

    async def post(self, address: str, body: Any = None, **headers: str) -> Answer:
        """Send a request; `body` is encoded unless it is bytes, `_` in names of fields is `-`."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        fields = [(name, value.encode("latin-1")) for name, value in (JSON | given).items()]
        return answer_of(await self.http.post(f"/{address}", content=content, headers=fields))

    async def get(self, path: str, **headers: str) -> Answer:
        """Ask."""
        return answer_of(await self.http.get(path, headers=headers))


def answer_of(response: httpx.Response) -> Answer:
    """Return an answer; check that one of a failure is a problem."""
    kind = response.headers.get("content-type", "")
    said = response.json() if "json" in kind else response.text
    if response.status_code >= 400 and "ready" not in said:
        assert kind == "application/problem+json"
        assert said["status"] == response.status_code
        assert said["type"].rpartition("/")[2].startswith("problems#")
        assert isinstance(said["may_have_executed"], bool)
    return Answer(response.status_code, said, response.headers)


def events_of(text: str) -> list[tuple[str, Any]]:
    """Return the events of a stream: their kind, "" for a partial reply, and their data."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n")]
        kind = next((value for name, _, value in fields if name == "event"), "")
        data = "\n".join(value for name, _, value in fields if name == "data")
        found.append((kind, json.loads(data)))
    return found


@asynccontextmanager
async def opened(
    *services: requite.Service, worker: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Door]:
    """Yield a client of a gateway in this process, without sockets of HTTP."""
    async with (
        served(*services, **(worker or {})) as client,
        Gateway(client, **settings) as gateway,
        httpx.AsyncClient(
            transport=httpx.ASGITransport(gateway), base_url="http://door", timeout=WAIT_S
        ) as http,
    ):
        yield Door(http, gateway, client)


class Listening(NamedTuple):
    """A gateway that listens, and its broker."""

    http: httpx.AsyncClient
    server: GatewayServer
    broker: requite.Broker
    port: int

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect, and send bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer


@asynccontextmanager
async def listening(
    *services: requite.Service, capacity: int = 1024, **settings: Any
) -> AsyncIterator[Listening]:
    """Yield a gateway that listens on loopback, with a broker and a worker."""
    broker = requite.Broker(
        "tcp://127.0.0.1:0",
        policy=requite.BrokerPolicy(service_grace_s=0.3, client_pending_max=4096),
    )
    [endpoint] = await broker.start()
    url = endpoint.replace("tcp://", "mdp://")
    worker = requite.Worker(url, *services, capacity=capacity)
    server = GatewayServer(url, Place("127.0.0.1", 0), **settings)
    try:
        await worker.start()
        await worker.until_connected(0)
        await server.start()
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.url, timeout=WAIT_S, limits=limits) as http:
            yield Listening(http, server, broker, int(server.url.rpartition(":")[2]))
    finally:
        await server.close()
        await worker.close()
        await broker.close()


def request(address: str, body: bytes = b'{"sku": "a", "count": 3}', *fields: str) -> bytes:
    """Return the bytes of a request."""
    lines = [f"POST /{address} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(body)}", *fields, "", ""]
    return "\r\n".join(lines).encode() + body


POLICY = GatewayPolicy()
