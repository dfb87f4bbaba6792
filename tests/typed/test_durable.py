"""Typed durable requests: real brokers, Titanics and workers, which are killed in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, Unpack

import pytest
from tests.spec.requirement import requirement
from tests.support.live import BrokerProcess, Process, processes
from tests.support.voyage import INTERVAL, TitanicProcess
from tests.typed.counted import RUNS
from tests.typed.shop import Order, Orders, OutOfStock, Quote

import requite
from requite import BadRequest, CallOptions, ConfigurationError, RemoteFailure

__all__ = ["processes"]


class Blocking(Protocol):
    @requite.raises(OutOfStock)
    def price(self, order: Order, **options: Unpack[CallOptions]) -> Quote: ...


class Calls(Protocol):
    async def price(self, order: Order, **options: Unpack[CallOptions]) -> Quote: ...


class Scene:
    """A broker with a Titanic, in its process or in another one, and a worker."""

    def __init__(self, folder: Path, processes: list[Process], *, inside: bool) -> None:
        self._folder, self._processes, self._inside = folder, processes, inside
        self._runs = folder / "runs"
        self._runs.touch()
        self.start()
        self.url = self.broker.url

    def start(self, **where: str) -> None:
        """Start the broker and the Titanic."""
        kept = self._folder / "kept"
        options = ["--titanic", str(kept)] if self._inside else []
        self.broker = self._own(BrokerProcess(*INTERVAL, *options, **where))
        if not self._inside:
            self.titanic = self._own(TitanicProcess(self.broker.url, kept))

    def kill_titanic(self) -> None:
        """Kill the process of the Titanic with SIGKILL, and start it again on its folder."""
        if self._inside:
            self.broker.kill()
            self.start(bind=self.broker.endpoint)
        else:
            self.titanic.kill()
            self.titanic = self._own(TitanicProcess(self.url, self._folder / "kept"))

    def work(self) -> None:
        """Start a worker of `tests.typed.counted`."""
        target = ("tests.typed.counted:orders", "--connect", self.url)
        command = ("-m", "requite.cli", "worker", *target, *INTERVAL)
        self._own(Process(*command, **{RUNS: str(self._runs)}))

    def runs(self, sku: str) -> int:
        """Return how often the method has run with this message."""
        return self._runs.read_text().split().count(sku)

    def _own(self, process: Any) -> Any:
        self._processes.append(process)
        return process


@pytest.mark.e2e
@pytest.mark.timeout(300)
@requirement("tsp:negative:stored", "tsp:negative:others")
@pytest.mark.parametrize("inside", [True, False], ids=["inside the broker", "beside it"])
def test_answers_of_a_typed_service_are_stored_and_failures_retried(
    tmp_path: Path, processes: list[Process], inside: bool
) -> None:
    scene = Scene(tmp_path, processes, inside=inside)
    with requite.Client(scene.url) as client:
        price = client.durable(client.bind(Blocking, "orders").price)
        good = price.submit(Order("a", 3), idempotency_key=b"order 1", timeout=60)
        assert price.submit(Order("a", 3), idempotency_key=b"order 1", timeout=60) == good
        none = price.submit(order=Order("none", 1))
        flaky = price.submit(Order("flaky", 1))
        bad = client.submit(b'{"sku": "bad", "count": "x"}', service="orders.price")
        scene.kill_titanic()
        scene.work()
        for _ in range(2):
            assert price.result(good, timeout=60) == Quote(Decimal("1.5"))
            assert price.result(flaky, timeout=60) == Quote(Decimal("0.5"))
            with pytest.raises(OutOfStock) as caught:
                price.result(none, timeout=60)
            assert caught.value == OutOfStock("none", left=3)
            with pytest.raises(BadRequest, match=r"^\$\.count: ") as refused:
                price.result(bad, timeout=60)
            assert refused.value.path == "$.count"
            assert not refused.value.may_have_executed
            with pytest.raises(RemoteFailure) as failure:  # as a client of bytes sees it
                client.result(none, timeout=60)
            assert failure.value.is_final
            scene.kill_titanic()
    assert [scene.runs(sku) for sku in ("a", "none", "flaky", "bad")] == [1, 1, 3, 0]
    asyncio.run(fetch_all(scene.url, {"good": good, "none": none}))


async def fetch_all(url: str, tickets: dict[str, str]) -> None:
    async with requite.AsyncClient(url) as client:
        price = client.durable(client.bind(Orders, "orders").price)
        assert await price.result(tickets["good"], timeout=60) == Quote(Decimal("1.5"))
        with pytest.raises(OutOfStock):
            await price.result(tickets["none"], timeout=60)
        again = await price.submit(Order("b", 1), timeout=60)
        assert await price.result(again, timeout=60) == Quote(Decimal("0.5"))
        for ticket in (*tickets.values(), again):
            await client.forget(ticket)
            with pytest.raises(requite.UnknownTicket):
                await price.result(ticket)


# --- what cannot be durable -----------------------------------------------------------------------
async def passing(message: Any, _context: requite.Context, proceed: requite.Proceed) -> Any:
    return await proceed(message)


def bound(**options: Any) -> tuple[requite.AsyncClient, Orders]:
    client = requite.AsyncClient("mdp://127.0.0.1:1/orders")
    return client, client.bind(Orders, **options)


@pytest.mark.parametrize(
    ("method", "options", "reason"),
    [
        (lambda orders: orders.watch, {}, "orders.watch has partial replies"),
        (lambda orders: orders.price, {"middleware": [passing]}, "bound with middleware"),
        (lambda _orders: print, {}, "takes a method of an object that this client has bound"),
        (lambda _orders: bound()[1].price, {}, "that this client has bound"),
    ],
)
async def test_a_method_that_cannot_be_durable_is_refused(
    method: Callable[[Orders], Any], options: dict[str, Any], reason: str
) -> None:
    client, orders = bound(**options)
    with pytest.raises(ConfigurationError, match=reason):
        client.durable(method(orders))


async def test_a_protocol_without_service_names_has_no_durable_requests() -> None:
    client = requite.AsyncClient("sp+tcp://127.0.0.1:1")
    orders = client.bind(Calls, "orders")
    with pytest.raises(ConfigurationError, match=r"orders\.price cannot be stored"):
        client.durable(orders.price)


async def test_a_wrong_message_or_option_is_refused_before_it_is_sent() -> None:
    client, _ = bound()
    price = client.durable(client.bind(Calls, "orders").price)
    with pytest.raises(ConfigurationError, match="may run more than once"):
        await price.submit(Order("a", 1), idempotent=False)
    with pytest.raises(TypeError, match="unexpected arguments speed"):
        await price.submit(Order("a", 1), speed=1)  # type: ignore[call-arg]
    assert repr(price) == "<AsyncDurableMethod orders.price>"
