"""What the HTTP door costs: processor time per request, beside a plain route of Starlette.

    python -m bench.door [--requests 2000] [--rounds 5] [--connections 8]

Two servers take the same request and return the same reply, with the same HTTP parser: `requite
gateway`, whose service is in a worker behind a broker, and a route of Starlette on uvicorn that
decodes and encodes the JSON itself. Rounds of both alternate. The table has the medians of the
processor time per request, of the server and of all processes behind it, so that other work on the
machine does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import requite
from bench.typed import ORDER, QUOTE, Order, Quote
from requite.testing.processes import Child, Children

_ADDRESS: Final = "orders.price"
_BODY: Final = msgspec.json.encode(ORDER)
_REQUEST: Final = (
    f"POST /{_ADDRESS} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY
_REPLY: Final = msgspec.json.encode(QUOTE)
_PLAIN: Final = "--plain"
_CLI: Final = ("-m", "requite.cli")
_US: Final = 1e6

orders = requite.Service("orders")


@orders.method
async def price(order: Order) -> Quote:
    """Return the price of an order."""
    return QUOTE


# --- the plain server -----------------------------------------------------------------------------
_decode: Final = msgspec.json.Decoder(Order).decode


async def _price(request: Request) -> Response:
    _decode(await request.body())
    return Response(msgspec.json.encode(QUOTE), media_type="application/json")


def _serve_plain() -> None:
    """Serve the route at a free port, and print its URL."""
    app = Starlette(routes=[Route(f"/{_ADDRESS}", _price, methods=["POST"])])
    config = uvicorn.Config(app, port=0, http="h11", ws="none", lifespan="off", log_config=None)
    sock = config.bind_socket()
    print(f"listening on http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(uvicorn.Server(config).serve([sock]))


def _new_loop() -> asyncio.AbstractEventLoop:
    from requite.shell.aio import new_event_loop

    return new_event_loop()  # that of `requite gateway`


# --- the measurement ------------------------------------------------------------------------------
class Server(NamedTuple):
    """A server: its port, its process, and those behind it."""

    name: str
    port: int
    process: psutil.Process
    behind: Sequence[psutil.Process]


class Cost(NamedTuple):
    """Processor time per request, in seconds: of the server, and of the processes behind it."""

    server_s: float
    behind_s: float


def _port(child: Child) -> int:
    return int(child.wait_for(r"listening on \w+://127\.0\.0\.1:(\d+)")[1])


@contextmanager
def _servers() -> Iterator[Sequence[Server]]:
    """Start the servers, and end them."""
    with Children() as children:
        broker = children.start([*_CLI, "broker", "--bind=tcp://127.0.0.1:0"], name="broker")
        url = f"mdp://127.0.0.1:{_port(broker)}"
        words = ["worker", "bench.door:orders", f"--connect={url}"]
        worker = children.start([*_CLI, *words], name="worker")
        worker.wait_for("serving orders.price")
        door = children.start([*_CLI, "gateway", url, "--http=:0"], name="gateway")
        plain = children.start(["-m", "bench.door", _PLAIN], name="plain route")
        behind = [psutil.Process(child.pid) for child in (broker, worker)]
        yield (
            Server("plain route", _port(plain), psutil.Process(plain.pid), ()),
            Server("`requite gateway`", _port(door), psutil.Process(door.pid), behind),
        )


async def _ask(port: int, count: int) -> None:
    """Make requests over one connection, one after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(_REQUEST)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if await reader.readexactly(size) != _REPLY:
            raise SystemExit(f"a wrong answer: {head.decode()}")
    writer.close()
    await writer.wait_closed()


async def _ask_all(port: int, requests: int, connections: int) -> None:
    share = requests // connections
    await asyncio.gather(*(_ask(port, share) for _ in range(connections)))


def _used(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _round(server: Server, requests: int, connections: int) -> Cost:
    before = _used([server.process]), _used(server.behind)
    asyncio.run(_ask_all(server.port, requests, connections))
    after = _used([server.process]), _used(server.behind)
    done = requests // connections * connections
    return Cost(*((end - began) / done for began, end in zip(before, after, strict=True)))


def measured(requests: int, rounds: int, connections: int) -> dict[str, Cost]:
    """Return the medians of the costs, by the name of the server."""
    costs: dict[str, list[Cost]] = {}
    with _servers() as servers:
        for server in servers:  # descriptions are fetched, and code is warm
            _round(server, requests // 4, connections)
        for _ in range(rounds):
            for server in servers:
                costs.setdefault(server.name, []).append(_round(server, requests, connections))
    return {
        name: Cost(*(statistics.median(column) for column in zip(*found, strict=True)))
        for name, found in costs.items()
    }


def table(costs: dict[str, Cost]) -> str:
    """Return the costs as a table of Markdown."""
    plain = next(iter(costs.values()))
    lines = [
        "| server | its processor time per request | ratio | with broker and worker |",
        "|---|---|---|---|",
    ]
    for name, cost in costs.items():
        whole = cost.server_s + cost.behind_s
        lines.append(
            f"| {name} | {cost.server_s * _US:.0f} µs | {cost.server_s / plain.server_s:.1f} |"
            f" {whole * _US:.0f} µs |"
        )
    return "\n".join(lines)


def main(arguments: Any = None) -> None:
    """Print the table, or serve the plain route."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--requests", type=int, default=2000, help="of a round")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--connections", type=int, default=8)
    options.add_argument(_PLAIN, action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args(arguments)
    if given.plain:
        _serve_plain()
    else:
        print(table(measured(given.requests, given.rounds, given.connections)))


if __name__ == "__main__":
    main(sys.argv[1:])
