"""Services that cannot work are refused; middleware, lifespan and dependencies."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
import pydantic
import pytest
from tests.typed.shop import Calls, Order, Orders, OutOfStock, Quote, Shop, served

import requite
from requite import ConfigurationError, Context, Depends
from requite.dedup import Dedup


class Strange:
    pass


async def no_annotation(order) -> int:  # type: ignore[no-untyped-def]
    return 1


async def no_return(order: Order):  # type: ignore[no-untyped-def]
    return 1


async def two_messages(order: Order, other: Order) -> int:
    return 1


async def strange(order: Strange) -> int:
    return 1


async def strange_reply(order: Order) -> list[Strange]:
    return []


async def no_iterator(order: Order) -> int:  # type: ignore[misc]
    yield 1


async def no_generator(order: Order) -> AsyncIterator[int]:
    raise NotImplementedError


async def many(*orders: Order) -> int:
    return 1


async def with_default(count: int = 3) -> int:
    return count


async def describe(order: Order) -> int:
    return 1


def namesake(kind: type) -> Any:
    return msgspec.defstruct("Order", [("x", kind)], module=__name__)


async def namesakes(order: list[namesake(int) | None]) -> namesake(str):  # type: ignore[valid-type]
    return order


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (no_annotation, "'order' of no_annotation has no annotation"),
        (no_return, "no_return has no annotation of what it returns"),
        (two_messages, r"two_messages has 2 messages \(order, other\)"),
        (strange, "takes .*Strange.*: messages cannot have values of Strange"),
        (strange_reply, "returns .*Strange.*: messages cannot have values of Strange"),
        (no_iterator, r"must be annotated to return AsyncIterator\[T\]"),
        (no_generator, "yield in it"),
        (many, "'orders' of many must be positional"),
        (with_default, "'count' of with_default has a default.*: remove it; a field of a message"),
        (describe, "'describe' cannot be the name of a method"),
    ],
)
def test_methods_that_cannot_work(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        requite.Service("orders").method(function)


@pytest.mark.parametrize("name", ["", "a b", "a..b", ".a", "1a", 7])
def test_names_that_cannot_be(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="words joined by dots"):
        requite.Service(name)


@pytest.mark.parametrize("version", ["", "v1", "1.2.3.4", "01", 1])
def test_versions_that_cannot_be(version: Any) -> None:
    with pytest.raises(ConfigurationError, match="three numbers"):
        requite.Service("orders", version=version)


def test_other_settings_that_cannot_work() -> None:
    with pytest.raises(ConfigurationError, match="'json' or 'msgpack', not 'xml'"):
        requite.Service("orders", codec="xml")
    with pytest.raises(ConfigurationError, match="has no methods"):
        requite.Worker("mdp://127.0.0.1", requite.Service("orders"))
    service = requite.Service("orders")
    service.method(namesakes)
    with pytest.raises(ConfigurationError, match="two types of the service have the name of"):
        requite.Worker("mdp://127.0.0.1", service)
    service = Shop().service
    with pytest.raises(ConfigurationError, match="two methods named 'price'"):
        service.method(name="price")(many_ints)
    with pytest.raises(ConfigurationError, match="not an exception class"):
        service.method(errors=[Strange])(many_ints)  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="callers get anyway"):
        service.method(errors=[requite.NoService])(many_ints)
    with pytest.raises(ConfigurationError, match="two errors named KeyError"):
        service.method(errors=[KeyError, KeyError])(many_ints)


async def many_ints(numbers: list[int]) -> int:
    return sum(numbers)


class NotAProtocol:
    async def price(self, order: Order) -> Quote: ...  # type: ignore[empty-body]


class Blocking(Protocol):
    def price(self, order: Order) -> Quote: ...


class WithData(Protocol):
    limit: int

    async def price(self, order: Order) -> Quote: ...


class Empty(Protocol):
    pass


class TakesRequest(Protocol):
    async def price(self, request: requite.Request) -> Quote: ...


class WithDefault(Protocol):
    async def price(self, count: int = 3) -> Quote: ...


class Awaited(Protocol):
    async def watch(self, order: Order) -> AsyncIterator[Quote]: ...


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        (NotAProtocol, "derives from Protocol"),
        (Blocking, r"an AsyncClient needs async def price\(...\)"),
        (Empty, "no methods to call"),
        (TakesRequest, "takes a Request"),
        (Awaited, "declared with `def`"),
        (WithDefault, "'count' of price has a default"),
    ],
)
def test_classes_that_cannot_be_bound(protocol: Any, reason: str) -> None:
    client = requite.AsyncClient("mdp://127.0.0.1/orders")
    with pytest.raises(ConfigurationError, match=reason):
        client.bind(protocol)
    assert client.bind(WithData) is not None  # data has no value, so it is no member to call


def test_a_service_must_be_named() -> None:
    client = requite.AsyncClient("mdp://127.0.0.1")
    with pytest.raises(ConfigurationError, match="the service is missing"):
        client.bind(Orders)
    with pytest.raises(ConfigurationError, match=r"a Client needs def price\(...\)"):
        requite.Client("mdp://127.0.0.1").bind(Calls, "orders")


# --- middleware -----------------------------------------------------------------------------------
async def test_middleware_at_both_ends_sees_messages_replies_and_errors() -> None:
    seen: list[Any] = []

    def noting(name: str) -> requite.Middleware:
        async def note(message: Any, context: Context, proceed: requite.Proceed) -> Any:
            seen.append((name, context.method, message.count))
            try:
                result = await proceed(Order(message.sku, message.count + 1))
            except Exception as error:
                seen.append((name, type(error).__name__))
                raise
            seen.append((name, type(result).__name__))
            return result

        return note

    shop = Shop(middleware=[noting("outer"), noting("inner")])
    async with served(shop.service) as client:
        orders = client.bind(Orders, "orders", middleware=[noting("client")])
        assert (await orders.price(Order("a", 1))).price == 2
        assert seen == [
            ("client", "price", 1),
            ("outer", "price", 2),
            ("inner", "price", 3),
            ("inner", "Quote"),
            ("outer", "Quote"),
            ("client", "Quote"),
        ]
        seen.clear()
        with pytest.raises(OutOfStock):
            await orders.price(Order("none", 1))
        assert [each[1] for each in seen[3:]] == ["OutOfStock"] * 3
        assert len(await orders.slow(Order("a", 1))) == 4  # a `def` method
        assert len([quote async for quote in orders.watch(Order("a", 1))]) == 4
        assert len([quote async for quote in orders.listing(Order("a", 1))]) == 4


@pytest.mark.e2e
async def test_middleware_of_a_blocking_client() -> None:
    async def double(message: Any, context: Context, proceed: requite.Proceed) -> Any:
        return [await proceed(message), await proceed(message)]

    async def sleepy(message: Any, context: Context, proceed: requite.Proceed) -> Any:
        await asyncio.sleep(0)

    class Doubled(Protocol):
        def slow(self, order: Order) -> list[Quote]: ...

    def call(url: str) -> None:
        with requite.Client(url, timeout=20.0) as client:
            twice = client.bind(Doubled, "orders", middleware=[double]).slow(Order("a", 1))
            assert twice == [[Quote(0)], [Quote(0)]]  # type: ignore[arg-type, comparison-overlap]
            with pytest.raises(requite.LocalViolation, match="besides `proceed`"):
                client.bind(Doubled, "orders", middleware=[sleepy]).slow(Order("a", 1))

    broker = requite.Broker("tcp://127.0.0.1:0")
    [place] = await broker.start()
    url = place.replace("tcp", "mdp")
    async with requite.Worker(url, Shop().service):
        await asyncio.to_thread(call, url)
    await broker.close()


# --- lifespan and dependencies --------------------------------------------------------------------
async def test_a_lifespan_surrounds_the_life_of_each_worker() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def life() -> AsyncIterator[str]:
        seen.append("begin")
        yield "the state"
        seen.append("end")

    service = requite.Service("alive", lifespan=life)

    @service.method
    async def state(context: Context) -> str:
        seen.append("call")
        return context.state  # type: ignore[no-any-return]

    for _ in range(2):
        async with served(service) as client:
            assert (await client.call(b"", service="alive.state")).body == b'"the state"'
    assert seen == ["begin", "call", "end"] * 2


async def test_a_lifespan_that_fails_fails_the_start() -> None:
    @asynccontextmanager
    async def life() -> AsyncIterator[None]:
        raise OSError("no database")
        yield

    service = requite.Service("dead", lifespan=life)
    service.method(many_ints)
    worker = requite.Worker("mdp+inproc://nowhere", service)
    with pytest.raises(OSError, match="no database"):
        await worker.start()
    await worker.close()


async def test_dependencies_are_made_once_per_request_or_worker() -> None:
    made: list[str] = []

    async def pool() -> str:
        made.append("pool")
        await asyncio.sleep(0)
        return "pool"

    def account(
        context: Context, pool: Annotated[str, Depends(pool, per="worker")]
    ) -> tuple[str, str]:
        made.append("account")
        return (pool, context.method)

    async def rights(account: Annotated[tuple[str, str], Depends(account)]) -> str:
        return "rights of " + account[1]

    service = requite.Service("needy")

    @service.method
    async def show(
        order: Order,
        account: Annotated[tuple[str, str], Depends(account)],
        rights: Annotated[str, Depends(rights)],
    ) -> list[str]:
        return [order.sku, *account, rights]

    @service.method
    def listing(
        account: Annotated[tuple[str, str], Depends(account)],
    ) -> Iterator[str]:
        yield from account
        yield str(threading.current_thread() is threading.main_thread())

    async with served(service) as client:
        calls = [
            client.call(b'{"sku":"a","count":1}', service="needy.show", timeout=20)
            for _ in range(3)
        ]
        for reply in await asyncio.gather(*calls):
            assert reply.body == b'["a","pool","show","rights of show"]'
        parts = [part.body async for part in client.stream(b"", service="needy.listing")]
        assert parts == [b'"pool"', b'"listing"', b'"False"', b""]
    assert sorted(made) == ["account"] * 4 + ["pool"]


NO_CONTEXT: Any = None


class Basket(msgspec.Struct):
    count: int = 3


@dataclass
class Box:
    count: int = 4


class Crate(pydantic.BaseModel):
    count: int = 5


async def test_fields_of_messages_and_parameters_without_a_message_may_have_defaults() -> None:
    service = requite.Service("defaults")

    def five() -> int:
        return 5

    @service.method
    async def basket(
        message: Basket,
        context: Context = NO_CONTEXT,
        five: Annotated[int, Depends(five)] = 0,
    ) -> list[int]:
        return [message.count, context.attempt, five]

    @service.method
    async def box(message: Box) -> int:
        return message.count

    @service.method
    async def crate(message: Crate) -> int:
        return message.count

    async with served(service) as client:
        for name, body in (("basket", b"[3,1,5]"), ("box", b"4"), ("crate", b"5")):
            assert (await client.call(b"{}", service=f"defaults.{name}")).body == body


def test_dependencies_that_cannot_work() -> None:
    def of_request(context: Context) -> int:
        return 1

    def unknown(order: Order) -> int:
        return 1

    def yielding() -> Iterator[int]:
        yield 1

    async def once(order: Order, x: Annotated[int, Depends(of_request, per="worker")]) -> int:
        return x

    async def odd(order: Order, x: Annotated[int, Depends(unknown)]) -> int:
        return x

    service = requite.Service("needy")
    with pytest.raises(ConfigurationError, match="made once per worker, so it cannot use"):
        service.method(once)
    with pytest.raises(ConfigurationError, match="neither a Context nor a Depends"):
        service.method(odd)
    with pytest.raises(ConfigurationError, match="lifespan"):
        Depends(yielding)
    with pytest.raises(ConfigurationError, match="'request' or 'worker'"):
        Depends(of_request, per="call")  # type: ignore[arg-type]


async def test_dedup_of_a_method() -> None:
    ran: list[int] = []
    service = requite.Service("once")

    @service.method(idempotent=Dedup())
    async def add(number: int) -> int:
        ran.append(number)
        return len(ran)

    async with served(service) as client:
        for _ in range(2):
            reply = await client.call(b"7", service="once.add", idempotency_key=b"k")
            assert reply.body == b"1"
    with pytest.raises(ConfigurationError, match="Dedup"):
        requite.Worker(service, bind="inproc://once")
