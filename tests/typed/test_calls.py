"""Typed calls from a bound client to a service, over each kind of transport."""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from decimal import Decimal
from typing import Any, Protocol, Unpack

import msgspec
import pytest
from tests.spec.requirement import requirement
from tests.typed.shop import (
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
from requite.request import Partial
from requite.typed.refusals import error_of

BINDS = ("inproc://typed-{}", "flp+inproc://typed-{}", "pirate+inproc://typed-{}")


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


@requirement("typed:partials")
async def test_partial_replies_are_values() -> None:
    async with served(Shop().service) as client:
        orders = client.bind(Orders, "orders")
        quotes = [Quote(Decimal(n)) for n in range(3)]
        assert [quote async for quote in orders.watch(Order("a", 3))] == quotes
        assert [quote async for quote in orders.listing(order=Order("a", 3))] == quotes
        failing = orders.watch(Order("none", 1))
        assert await anext(failing) == quotes[0]
        with pytest.raises(OutOfStock):
            await anext(failing)
        stream = client.stream(b'{"sku":"a","count":1}', service="orders.watch")
        parts = [part async for part in stream]
        assert [(type(part), part.body) for part in parts] == [
            (Partial, b'{"price":"0"}'),
            (requite.Reply, b""),
        ]
        with pytest.raises(BadRequest):
            await anext(orders.watch(b"no order"))  # type: ignore[arg-type]


@requirement("typed:no-partials")
@pytest.mark.parametrize("bind", BINDS, ids=["sp", "flp", "pirate"])
async def test_partial_replies_are_refused_where_they_are_not_carried(bind: str) -> None:
    with pytest.raises(ConfigurationError, match="partial replies"):
        requite.Worker(Shop().service, bind=bind.format("none"))
    client = requite.AsyncClient(bind.format("none"))
    with pytest.raises(ConfigurationError, match="partial replies"):
        client.bind(Orders, "orders")


@requirement("typed:partials", "typed:body-request")
async def test_a_group_of_a_pool_has_partial_replies() -> None:
    url = "mdp+inproc://group?pool=p&key=k"
    async with (
        requite.Broker("inproc://group"),
        requite.Worker(url, Shop().service) as worker,
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        assert worker.services == ["orders"]
        orders = client.bind(Orders, "orders")
        quotes = [Quote(Decimal(n)) for n in range(3)]
        assert await orders.price(Order("a", 3)) == Quote(Decimal("1.5"))
        assert await orders.slow(Order("a", 3)) == quotes
        assert [quote async for quote in orders.watch(Order("a", 3))] == quotes
        assert [quote async for quote in orders.listing(Order("a", 3))] == quotes
        failing = orders.watch(Order("none", 1))
        assert await anext(failing) == quotes[0]
        with pytest.raises(OutOfStock):
            await anext(failing)
        with pytest.raises(BadRequest):
            await anext(orders.watch(b"no order"))  # type: ignore[arg-type]
        request = b'\x11RQT1\x0corders.watch{"sku":"a","count":1}'
        parts = [(type(part), part.body) async for part in client.stream(request)]
        assert parts == [(Partial, b'{"price":"0"}'), (requite.Reply, b"")]


async def test_partial_replies_of_a_group_end_with_the_call_that_is_cancelled() -> None:
    url, ended = "mdp+inproc://group-cancelled?pool=p&key=k", asyncio.Event()
    service = requite.Service("ticking")

    @service.method
    async def tick(count: int) -> AsyncIterator[int]:
        try:
            yield count
            await asyncio.Event().wait()
        finally:
            ended.set()

    class Ticking(Protocol):
        def tick(self, count: int) -> AsyncIterator[int]: ...

    async with (
        requite.Broker("inproc://group-cancelled"),
        requite.Worker(url, service),
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        async with aclosing(client.bind(Ticking, "ticking").tick(1)) as numbers:  # type: ignore[type-var]
            assert await anext(numbers) == 1
        await ended.wait()


def test_a_queue_of_rabbitmq_is_one_service_with_partial_replies() -> None:
    url = "amqp://127.0.0.1?queue=q"
    assert requite.Worker(url, Shop().service).services == ["orders"]
    assert requite.AsyncClient(url).bind(Orders, "orders") is not None


@requirement("typed:old-mdp")
@pytest.mark.parametrize("dialect", ["0.1", "0.2"])
def test_versions_of_mdp_without_negative_replies_are_refused(dialect: str) -> None:
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.Worker("mdp://127.0.0.1", Shop(partials=False).service, dialect=dialect)
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.AsyncClient("mdp://127.0.0.1", dialect=dialect).bind(Calls, "orders")
    with pytest.raises(ConfigurationError, match="negative replies"):
        requite.AsyncClient(f"mdp://127.0.0.1?dialect={dialect}").bind(Calls, "orders")


@requirement("typed:names")
async def test_two_versions_side_by_side() -> None:
    class Tripled(Protocol):
        async def price(self, order: Order) -> int: ...

    second = requite.Service("orders", version="2.1")

    @second.method
    async def price(order: Order) -> int:
        return 3 * order.count

    async with served(Shop(version="1.7").service, second) as client:
        assert await client.bind(Calls, "orders").price(Order("a", 2)) == Quote(Decimal(1))
        assert await client.bind(Tripled, "orders", version="2").price(Order("a", 2)) == 6
        reply = await client.call(b'{"sku":"a","count":2}', service="orders.v2.price")
        assert reply.body == b"6"


async def test_a_schema_that_changed_under_a_bound_client() -> None:
    class Stale(Protocol):
        async def slow(self, order: Order) -> list[int]: ...

        async def price(self, order: str) -> Quote: ...

    async with served(Shop().service) as client:
        orders = client.bind(Stale, "orders")
        with pytest.raises(BadReply) as caught:
            await orders.slow(Order("a", 1))
        assert (caught.value.path, caught.value.reason) == ("$[0]", "expected int, got object")
        assert caught.value.may_have_executed
        with pytest.raises(BadRequest, match="expected object, got str"):
            await orders.price("a")


class ColouredOrder(Order):
    colour: str


def changed_shop() -> requite.Service:
    """Return a later shop: orders need a colour, prices are cents, and `ping` is gone."""
    service = requite.Service("orders")

    async def price(order: ColouredOrder) -> int:
        raise AssertionError("it must not run")

    async def slow(order: Order) -> list[int]:
        return [50]

    async def watch(order: Order) -> AsyncIterator[int]:
        yield 50

    for method in (price, slow, watch):
        service.method(method)
    return service


async def test_a_service_that_is_replaced_under_a_bound_client() -> None:
    url = "mdp+inproc://replaced"
    policy = requite.BrokerPolicy(service_grace_s=0.1)
    async with (
        requite.Broker("inproc://replaced", policy=policy),
        requite.AsyncClient(url, timeout=20.0) as client,
    ):
        orders = client.bind(Orders, "orders")
        async with requite.Worker(url, Shop().service):
            assert await orders.price(Order("a", 2)) == Quote(Decimal(1))
            await orders.ping()
        async with requite.Worker(url, changed_shop()):
            with pytest.raises(BadRequest, match="missing required field colour") as refused:
                await orders.price(Order("a", 2))
            assert not refused.value.may_have_executed
            with pytest.raises(BadReply, match="`requite describe` shows what the service") as odd:
                await orders.slow(Order("a", 2))
            assert (odd.value.path, odd.value.may_have_executed) == ("$[0]", True)
            with pytest.raises(BadReply, match="expected object, got int"):
                [quote async for quote in orders.watch(Order("a", 2))]
            with pytest.raises(NoService) as gone:
                await orders.ping()
            assert not gone.value.may_have_executed


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "the body is empty"),
        (b"{sku}", "malformed"),
        (b'{"sku":"a","count":1} ?', "trailing"),
        (b'{"sku":"\xff","count":1}', "utf-8"),
        (b'{"sku":"a","count":' + b"[" * 100_000, "nested too deeply|array"),
    ],
)
async def test_bodies_that_are_no_messages(body: bytes, reason: str) -> None:
    shop = Shop()
    async with served(shop.service) as client:
        with pytest.raises(RemoteFailure, match=f"(?i){reason}") as caught:
            await client.call(body, service="orders.price")
        assert str(caught.value).startswith('{"error":"BadRequest"')
        assert shop.seen == []


@requirement("typed:duplicate-keys", "typed:unknown-keys")
async def test_duplicate_keys_are_refused_and_unknown_ones_ignored() -> None:
    async with served(Shop().service, Shop(version="2", codec="msgpack").service) as client:
        twice = b'{"sku":"a","count":1,"count":2}'
        with pytest.raises(RemoteFailure, match="'count' twice"):
            await client.call(twice, service="orders.price")
        unknown = b'{ "sku": "a", "colour": "red", "count": 2 }'
        assert (await client.call(unknown, service="orders.price")).body == b'{"price":"1"}'
        packed = msgspec.msgpack.encode({"sku": "a", "count": 2})
        twice = b"\x83" + packed[1:] + msgspec.msgpack.encode("count") + b"\x09"
        with pytest.raises(RemoteFailure, match="twice"):
            await client.call(twice, service="orders.v2.price")


async def test_a_message_too_deep_to_be_read() -> None:
    deep = requite.Service("deep")

    @deep.method
    async def echo(value: Any) -> Any:
        return value

    class Deep(Protocol):
        async def echo(self, value: Any) -> Any: ...

    async with served(deep) as client:
        with pytest.raises(RemoteFailure, match="nested too deeply"):
            await client.call(b"[" * 90_000 + b"]" * 90_000, service="deep.echo")
        endless: list[Any] = []
        endless.append(endless)
        with pytest.raises(BadRequest, match="nested too deeply"):
            await client.bind(Deep, "deep").echo(endless)


async def test_messages_that_are_too_large() -> None:
    shop = Shop()
    async with served(shop.service, message_size_max=100_000) as client:
        orders = client.bind(Calls, "orders")
        with pytest.raises(RemoteFailure, match="maximum is 100000"):
            await orders.slow(Order("a", 20_000))
    small = requite.AsyncClient("mdp://127.0.0.1/orders", message_size_max=1000)
    with pytest.raises(ConfigurationError, match="message_size_max"):
        await small.bind(Calls).price(Order("a" * 2000, 1))


@requirement("typed:error-size")
async def test_an_error_that_is_too_large_loses_its_data() -> None:
    big = requite.Service("big")

    @big.method(errors=[OutOfStock])
    async def fail(order: Order) -> None:
        raise OutOfStock(order.sku * 70_000)

    class Big(Protocol):
        @requite.raises(OutOfStock)
        async def fail(self, order: Order) -> None: ...

    async with served(big) as client:
        said = r"^OutOfStock, which cannot be sent: .* maximum is 65536$"
        with pytest.raises(RemoteFailure, match=said):
            await client.bind(Big, "big").fail(Order("a", 1))


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
