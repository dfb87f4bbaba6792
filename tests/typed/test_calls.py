"""Typed calls from a bound client to a service, over each kind of transport."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any, Protocol, Unpack

import pytest
from tests.spec.requirement import requirement
from tests.typed.shop import (
    BINDS,
    BlockingOrders,
    Calls,
    Closed,
    Order,
    Orders,
    OutOfStock,
    Quote,
    Shop,
    served,
)

import requite
from requite import (
    BadReply,
    BadRequest,
    CallOptions,
    ConfigurationError,
    NoService,
    RemoteFailure,
)
from requite.cli.descriptions import typed_error
from requite.typed.refusals import error_of


async def connected(
    stack: AsyncExitStack, bind: str, shop: Shop, **settings: Any
) -> requite.AsyncClient:
    """Return a client of the service: at `bind`, or of a broker if it is ""."""
    if not bind:
        return await stack.enter_async_context(served(shop.service))
    worker = requite.Worker(shop.service, bind=bind.format(id(shop)))
    await worker.start()
    stack.push_async_callback(worker.close)
    client = requite.AsyncClient(worker.addresses[0], timeout=20.0, **settings)
    return await stack.enter_async_context(client)


@pytest.fixture(params=["", *BINDS], ids=["mdp", "sp", "flp", "pirate"])
def bind(request: pytest.FixtureRequest) -> str:
    place: str = request.param
    return place


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as each:
        yield each


@requirement("typed:messages", "typed:names", "typed:body-request", "typed:body-reply")
@pytest.mark.parametrize("codec", ["json", "msgpack"])
async def test_messages_of_every_kind(bind: str, codec: str, stack: AsyncExitStack) -> None:
    shop = Shop(partials=False, codec=codec)
    client = await connected(stack, bind, shop)
    orders = client.bind(Calls, "orders", codec=codec)
    assert await orders.price(Order("a", 3), timeout=20) == Quote(Decimal("1.5"))
    assert await orders.price(order=Order("a", 4)) == Quote(Decimal(2))
    assert await orders.slow(Order("a", 2)) == [Quote(Decimal(0)), Quote(Decimal(1))]
    assert await orders.raw(b"\x00abc") == b"cba\x00"
    shop.seen.clear()
    await orders.ping()
    assert shop.seen == [None]


async def test_declared_errors_reach_the_caller_as_themselves(
    bind: str, stack: AsyncExitStack
) -> None:
    shop = Shop(partials=False)
    orders = (await connected(stack, bind, shop)).bind(Calls, "orders")
    with pytest.raises(OutOfStock) as caught:
        await orders.price(Order("none", 1))
    assert caught.value == OutOfStock("none", left=3)
    with pytest.raises(Closed, match=r"^until nine$"):
        await orders.price(Order("closed", 1))


@requirement("typed:final")
@pytest.mark.parametrize(
    ("sku", "is_final"),
    [("none", True), ("closed", True), ("broken", False), ("refused", False), ("wrong", False)],
)
async def test_only_answers_are_final(sku: str, is_final: bool) -> None:
    async with served(Shop().service) as client:
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b'{"sku":"%b","count":1}' % sku.encode(), service="orders.price")
        assert caught.value.is_final is is_final
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b"no JSON", service="orders.price")
        assert caught.value.is_final


@requirement("typed:no-disguise")
async def test_other_failures_are_remote_failures(bind: str, stack: AsyncExitStack) -> None:
    shop = Shop(partials=False)
    orders = (await connected(stack, bind, shop)).bind(Calls, "orders")
    with pytest.raises(RemoteFailure, match=r"^ValueError: no such account$") as caught:
        await orders.price(Order("broken", 1))
    assert caught.value.may_have_executed
    with pytest.raises(RemoteFailure, match="a lie"):
        await orders.price(Order("refused", 1))


@requirement("typed:no-disguise")
async def test_an_error_of_a_call_in_a_method_is_a_failure_of_the_method(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients: list[requite.AsyncClient] = []
    front = requite.Service("front")

    @front.method(errors=[Closed])
    async def ask(order: Order) -> Quote:
        return await clients[0].bind(Calls, "orders").price(order)

    @front.method
    async def pass_on(body: bytes) -> bytes:
        return (await clients[0].call(body, service="orders.price")).body

    @front.method
    async def nobody() -> bytes:
        return (await clients[0].call(b"", service="nobody")).body

    @requite.service("proxy")
    async def proxy(request: requite.Request) -> bytes:
        return (await clients[0].call(request.body, service="orders.price")).body

    async with served(Shop().service, front, proxy) as client:
        clients.append(client)
        bad = 'RemoteFailure: {"error":"BadRequest"'
        failed = "RemoteFailure: ValueError: no such account"
        for service, body, text in [
            ("front.ask", b'{"sku":"broken","count":1}', failed),
            ("front.ask", b'{"sku":"none","count":1}', "OutOfStock: "),
            ("front.pass_on", b"[]", bad),
            ("front.nobody", b"", "NoService: "),
            ("proxy", b"[]", bad),
            ("proxy", b'{"sku":"broken","count":1}', failed),
        ]:
            caplog.clear()
            with pytest.raises(RemoteFailure) as caught:
                await client.call(body, service=service)
            assert str(caught.value).startswith(text)
            assert typed_error(caught.value) is caught.value
            assert caught.value.may_have_executed
            assert f"a handler of {service} failed" in caplog.text

        class Front(Protocol):
            @requite.raises(Closed)
            async def ask(self, order: Order) -> Quote: ...

        with pytest.raises(Closed, match="until nine"):  # which the method declares
            await client.bind(Front, "front").ask(Order("closed", 1))


@requirement("typed:reason", "typed:not-run")
@pytest.mark.parametrize(
    ("message", "path", "reason"),
    [
        ({"sku": "a", "count": "x"}, "$.count", "expected int, got str"),
        ({"sku": "a"}, "$", "object missing required field count"),
        ([1], "$", "expected object, got array"),
    ],
)
async def test_a_bad_request_names_the_place_and_the_handler_has_not_run(
    bind: str, message: Any, path: str, reason: str, stack: AsyncExitStack
) -> None:
    shop = Shop(partials=False)
    orders = (await connected(stack, bind, shop)).bind(Calls, "orders")
    with pytest.raises(BadRequest) as caught:
        await orders.price(message)
    assert (caught.value.path, caught.value.reason.lower()) == (path, reason)
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert not caught.value.may_have_executed
    assert shop.seen == []


@pytest.mark.parametrize("sku", ["wrong", "wrong inside"])
async def test_a_wrong_reply_is_a_failure_and_a_line_in_the_log(
    bind: str, sku: str, stack: AsyncExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    orders = (await connected(stack, bind, Shop(partials=False))).bind(Calls, "orders")
    caplog.set_level(logging.ERROR)
    with pytest.raises(RemoteFailure, match="wrong reply"):
        await orders.price(Order(sku, 1))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.startswith("orders.price returned a wrong reply: $")


@requirement("typed:body-unmarked", "typed:not-run")
async def test_an_unknown_method_has_not_run(bind: str, stack: AsyncExitStack) -> None:
    class Others(Protocol):
        async def refund(self, order: Order) -> Quote: ...

    client = await connected(stack, bind, Shop(partials=False))
    with pytest.raises(NoService) as caught:
        await client.bind(Others, "orders").refund(Order("a", 1))
    assert not caught.value.may_have_executed


@pytest.mark.parametrize("bind", BINDS, ids=["sp", "flp", "pirate"])
@requirement("typed:body-unmarked")
async def test_bytes_that_are_no_typed_call_get_a_negative_reply(
    bind: str, stack: AsyncExitStack
) -> None:
    client = await connected(stack, bind, Shop(partials=False))
    reply = await client.call(b'{"sku":"a","count":1}')
    assert reply.body.startswith(b'\x11RQT1\x01{"error":"BadRequest"')


@requirement("typed:old-mdp")
@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_versions_of_mdp_without_negative_replies_are_refused(dialect: str) -> None:
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.Worker("mdp://127.0.0.1", Shop(partials=False).service, dialect=dialect)
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.AsyncClient("mdp://127.0.0.1", dialect=dialect).bind(Calls, "orders")
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.AsyncClient(f"mdp://127.0.0.1?dialect={dialect}").bind(Calls, "orders")


async def test_the_context_of_a_call() -> None:
    shop = Shop()
    async with served(shop.service) as client:
        orders = client.bind(Orders, "orders")
        await orders.price(Order("a", 1), idempotency_key=b"k1", timeout=50.0)  # type: ignore[call-arg]
        [context] = shop.contexts
        assert (context.service, context.version, context.method) == ("orders", "1.0", "price")
        assert (context.attempt, context.idempotency_key) == (1, b"k1")
        assert context.principal == ""
        assert context.headers == {}
        assert context.remaining_s is not None
        assert 30 < context.remaining_s <= 50
        context.progress()


async def test_a_reused_key_is_a_bad_request_that_has_not_run() -> None:
    service = requite.Service("orders")
    ran: list[int] = []

    @service.method(idempotent=requite.Dedup())
    async def pay(cents: int) -> int:
        ran.append(cents)
        return cents

    class Paying(Protocol):
        async def pay(self, cents: int, **options: Unpack[CallOptions]) -> int: ...

    async with served(service) as client:
        orders = client.bind(Paying, "orders")
        for _ in range(2):
            assert await orders.pay(5, idempotency_key=b"k") == 5
        with pytest.raises(BadRequest) as caught:
            await orders.pay(6, idempotency_key=b"k")
    assert (caught.value.path, caught.value.may_have_executed) == ("$", False)
    assert "idempotency key, or call id, was used before, with another body" in str(caught.value)
    assert ran == [5]


class WithOptions(Protocol):
    async def price(self, order: Order, **options: Unpack[CallOptions]) -> Quote: ...

    def watch(self, order: Order, **options: Unpack[CallOptions]) -> AsyncIterator[Quote]: ...


async def test_options_of_a_call_are_declared_at_once() -> None:
    shop = Shop()
    async with served(shop.service) as client:
        orders = client.bind(WithOptions, "orders")
        end = requite.deadline(20)
        assert await orders.price(Order("a", 3), timeout=end, idempotency_key=b"k") == Quote(
            Decimal("1.5")
        )
        [context] = shop.contexts
        assert context.idempotency_key == b"k"
        assert context.remaining_s is not None
        assert 15 < context.remaining_s <= 20
        quotes = [quote async for quote in orders.watch(Order("a", 2), timeout=20)]
        assert quotes == [Quote(Decimal(0)), Quote(Decimal(1))]


async def test_a_call_that_is_cancelled_interrupts_its_method() -> None:
    began, ended = asyncio.Event(), asyncio.Event()
    service = requite.Service("waiting")

    @service.method
    async def wait(order: Order) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    class Waiting(Protocol):
        async def wait(self, order: Order) -> None: ...

    async with served(service) as client:
        task = asyncio.ensure_future(client.bind(Waiting, "waiting").wait(Order("a", 1)))
        await began.wait()
        task.cancel()
        await ended.wait()
        assert (await asyncio.gather(task, return_exceptions=True))[0].__class__ is (
            asyncio.CancelledError
        )


def test_errors_survive_pickling() -> None:
    for kind in (BadRequest, BadReply):
        error = kind("what", path="$.a", reason="why", may_have_executed=False, attempts=2)
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.path, copy.reason) == (str(error), error.path, error.reason)
        assert (copy.may_have_executed, copy.attempts) == (error.may_have_executed, error.attempts)
        error.request_id = "37318fdeaa15e1b00000000000000007"
        assert pickle.loads(pickle.dumps(error)).request_id == error.request_id


def test_an_error_of_a_typed_service_has_the_id_of_its_request() -> None:
    failure = RemoteFailure('{"error":"NoService","message":"this service has no method"}')
    failure.request_id = "37318fdeaa15e1b00000000000000007"
    error = error_of(failure, {})
    assert isinstance(error, NoService)
    assert error.request_id == failure.request_id


@pytest.mark.e2e
async def test_the_blocking_client_binds_too() -> None:
    broker = requite.Broker("tcp://127.0.0.1:0")
    [place] = await broker.start()
    url = place.replace("tcp", "mdp")
    try:
        async with requite.Worker(url, Shop().service):
            assert await asyncio.to_thread(call_blocking, f"{url}/orders") == Quote(Decimal(1))
    finally:
        await broker.close()


def call_blocking(url: str) -> Quote:
    with requite.Client(url, timeout=20.0) as client:
        orders = client.bind(BlockingOrders)
        quote = orders.price(Order("a", 2), timeout=20)
        assert list(orders.watch(Order("a", 2))) == [Quote(Decimal(0)), Quote(Decimal(1))]
        with pytest.raises(OutOfStock):
            orders.price(order=Order("none", 2))
        with pytest.raises(OutOfStock):
            list(orders.watch(Order("none", 2)))
        with pytest.raises(BadRequest):
            orders.price(b"")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="misses the argument 'order'"):
            orders.price()  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="unexpected arguments colour"):
            orders.price(Order("a", 1), colour=1)  # type: ignore[call-arg]
        return quote
