"""What types cost: CPU time per call above bytes, at the worker and at the client.

    python -m bench.typed [--calls 20000] [--rounds 9]

Each side is measured without a network: the handler that a worker runs for a method, and the method
of a bound client whose client answers at once. Types and bytes are measured in turn, so that both
have the same machine; the medians of the rounds are printed, and the same for messages of bytes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Awaitable, Callable
from time import process_time
from typing import Any, Final, Protocol

import msgspec

import requite
from requite.request import Reply, Request
from requite.speaks.plans import Carries
from requite.typed.binding import Options, bind
from requite.worker import service

_ALL: Final = Carries(names=True, refusals=True, partials=True)


class Order(msgspec.Struct):
    """A message of 122 bytes in JSON."""

    sku: str
    count: int
    customer: str
    note: str
    express: bool
    price: float
    tags: list[str]


class Quote(msgspec.Struct):
    """A reply of 58 bytes in JSON."""

    price: float
    currency: str
    valid_s: int
    note: str


ORDER: Final = Order("a-1234", 2, "c-99", "please ring twice", False, 12.5, ["new", "gift"])
QUOTE: Final = Quote(25.0, "EUR", 3600, "")


class Orders(Protocol):
    """The methods of the bound client."""

    async def price(self, order: Order) -> Quote: ...


def run(work: Awaitable[Any]) -> Any:
    """Run a coroutine that never waits."""
    try:
        work.__await__().__next__()
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


def at_worker(codec: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a call of a typed handler, and one of a handler of bytes."""
    orders = requite.Service("orders", codec=codec)

    @orders.method
    async def price(order: Order) -> Quote:
        return QUOTE

    body, reply = orders.codec.encode(ORDER), orders.codec.encode(QUOTE)

    @service("price")
    async def price_of_bytes(request: Request) -> bytes:
        assert request.body
        return reply

    typed = orders.serve(_ALL).services[0].handler
    request = Request("orders.price", (body,))
    assert run(typed(request)) == run(price_of_bytes(request)) == reply
    return lambda: run(typed(request)), lambda: run(price_of_bytes.handler(request))


def at_client(codec: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a call of a bound method, and one of the client with bytes."""
    encode = requite.Service("orders", codec=codec).codec.encode
    body, answer = encode(ORDER), Reply((encode(QUOTE),))

    class Answering:
        async def call(
            self,
            _body: bytes,
            *,
            timeout: Any = ...,  # noqa: ASYNC109
            service: str | None = None,
            idempotent: bool = True,
            idempotency_key: bytes = b"",
        ) -> Reply:
            return answer

        stream = call

    client = Answering()
    orders = bind(client, Orders, Options("orders", "1", codec, (), _ALL, is_async=True))
    assert run(orders.price(ORDER)) == QUOTE
    return lambda: run(orders.price(ORDER)), lambda: run(client.call(body)).body


def measure(one: Callable[[], object], other: Callable[[], object], n: int, rounds: int) -> Any:
    """Return the medians of the CPU time of a call of each, in microseconds."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, found in zip((one, other), times, strict=True):
            began = process_time()
            for _ in range(n):
                work()
            found.append((process_time() - began) / n * 1e6)
    return tuple(map(statistics.median, times))


def main() -> None:
    """Print a line per codec and side."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=9)
    given = options.parse_args()
    for codec in ("json", "msgpack"):
        for side, pair in (("worker", at_worker), ("client", at_client)):
            typed_us, bytes_us = measure(*pair(codec), given.calls, given.rounds)
            print(
                f"{codec:8} {side}: typed {typed_us:5.2f} us, bytes {bytes_us:5.2f} us,"
                f" types cost {typed_us - bytes_us:5.2f} us ({typed_us / bytes_us:.1f} x)"
            )


if __name__ == "__main__":
    main()
