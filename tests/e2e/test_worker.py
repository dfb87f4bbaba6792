"""`Worker` with a real broker on one event loop: all kinds of handlers, and their failures."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from requite import (
    ConfigurationError,
    Partial,
    RemoteFailure,
    Reply,
    Request,
    RetryPolicy,
    Worker,
    service,
)

pytestmark = pytest.mark.e2e


# --- kinds of handlers and their results ----------------------------------------------------------
@service("it")
async def upper(request: Request) -> bytes:
    return request.body.upper()


@service("it")
async def upper_after_a_while(request: Request) -> bytes:
    await asyncio.sleep(0.001)
    return request.body.upper()


@service("it")
def upper_in_a_thread(request: Request) -> bytes:
    assert threading.current_thread() is not threading.main_thread()
    return request.body.upper()


class Upper:
    """An object whose `__call__` is a coroutine function."""

    async def __call__(self, request: Request) -> bytes:
        return request.body.upper()


async def _upper_of(how: str, request: Request) -> bytes:
    return request.body.upper() if how == "upper" else b"?"


@pytest.mark.parametrize(
    "handler",
    [
        upper,
        upper_after_a_while,
        upper_in_a_thread,
        service("it")(Upper()),
        service("it")(functools.partial(_upper_of, "upper")),
    ],
    ids=["async", "suspending", "thread", "object", "partial"],
)
@pytest.mark.parametrize("dialect", ["0.3", "0.2", "0.1"])
async def test_handlers_of_each_kind_answer_many_calls(cluster, handler, dialect):
    await cluster.worker(handler, dialect=dialect)
    client = await cluster.client(dialect=dialect, connections=8)
    bodies = [b"call %d" % n for n in range(100)]
    replies = [reply.body async for reply in client.map(bodies, concurrency=32)]
    assert replies == [body.upper() for body in bodies]


@service("it")
async def count(request: Request) -> AsyncIterator[bytes]:
    for n in range(int(request.body)):
        yield b"%d" % n


@service("it")
def count_in_a_thread(request: Request):
    for n in range(int(request.body)):
        yield b"%d" % n
    return b"done"


@pytest.mark.parametrize(("handler", "end"), [(count, b""), (count_in_a_thread, b"done")])
@pytest.mark.parametrize("n", [0, 1, 300])
async def test_generators_stream(cluster, handler, end, n):
    await cluster.worker(handler)
    client = await cluster.client()
    parts = [part async for part in client.stream(b"%d" % n)]
    assert [type(part) for part in parts] == [Partial] * n + [Reply]
    assert [part.body for part in parts] == [b"%d" % i for i in range(n)] + [end]


@pytest.mark.parametrize(
    ("result", "frames"),
    [
        (b"one", [b"one"]),
        ([b"two", b"frames"], [b"two", b"frames"]),
        ((b"",), [b""]),
        ([], [b""]),
        (None, [b""]),
        (bytearray(b"raw"), [b"raw"]),
        (memoryview(b"view"), [b"view"]),
    ],
)
async def test_valid_results_of_a_handler(cluster, result, frames):
    @service("it")
    async def answer(request: Request):
        return result

    await cluster.worker(answer)
    reply = await (await cluster.client()).call([b"any", b"frames"])
    assert reply.frames == frames


@pytest.mark.parametrize("result", ["text", 7, [b"ok", "text"], {b"a": 1}])
async def test_invalid_results_of_a_handler(cluster, result):
    @service("it")
    async def answer(request: Request):
        return result

    await cluster.worker(answer)
    with pytest.raises(RemoteFailure, match="TypeError: a handler must return bytes"):
        await (await cluster.client()).call(b"")


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["async", "thread", "async generator", "generator"])
async def test_an_exception_is_a_negative_reply_and_is_logged(cluster, kind, caplog):
    def fail(request: Request) -> None:
        raise ValueError("no such thing")

    async def afail(request: Request) -> bytes:
        fail(request)
        return b""

    async def agen(request: Request) -> AsyncIterator[bytes]:
        yield b"first"
        fail(request)

    def gen(request: Request):
        yield b"first"
        fail(request)

    handlers = {"async": afail, "thread": fail, "async generator": agen, "generator": gen}
    await cluster.worker(service("it")(handlers[kind]), capacity=2)
    client = await cluster.client()
    for _ in range(5):  # more than the capacity: each failure frees its slot
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b"")
        assert str(caught.value) == "ValueError: no such thing"
        assert caught.value.may_have_executed
    records = [r for r in caplog.records if r.name == "requite.worker"]
    assert records
    assert records[0].levelno == logging.WARNING
    assert records[0].exc_info is not None


class WithoutText(Exception):
    """An exception whose `__str__` raises."""

    def __str__(self) -> str:
        raise RuntimeError("do not ask")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("half a character: \udc80"), "ValueError: half a character: "),
        (StopIteration("at its end"), "RuntimeError: "),  # PEP 479, and threads likewise
        (TimeoutError(), "TimeoutError: "),
        (ExceptionGroup("several", [OSError()]), "ExceptionGroup: several"),
        (WithoutText(), "WithoutText"),
        (RemoteFailure("as it is"), "as it is"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_any_exception_frees_the_slot(cluster, error, text, in_thread):
    def fail(request: Request) -> bytes:
        if request.body == b"well":
            return b"well"
        raise error

    async def afail(request: Request) -> bytes:
        return fail(request)

    await cluster.worker(service("it")(fail if in_thread else afail), capacity=1)
    client = await cluster.client(timeout=15.0)
    for _ in range(2):
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b"")
        assert str(caught.value).startswith(text)
    assert (await client.call(b"well")).body == b"well"


class OtherError(BaseException):
    """A `BaseException` that is no `Exception`, like those of test and task frameworks."""


@pytest.mark.parametrize(
    ("kind", "in_thread"),
    [(OtherError, False), (OtherError, True), (SystemExit, True), (KeyboardInterrupt, True)],
)
async def test_a_base_exception_frees_the_slot_too(cluster, kind, in_thread):
    def fail(request: Request) -> bytes:
        if request.body == b"well":
            return b"well"
        raise kind("odd")

    async def afail(request: Request) -> bytes:
        return fail(request)

    await cluster.worker(service("it")(fail if in_thread else afail), capacity=1)
    client = await cluster.client(timeout=15.0)
    for _ in range(2):
        with pytest.raises(RemoteFailure, match=f"{kind.__name__}: odd"):
            await client.call(b"")
    assert (await client.call(b"well")).body == b"well"


@pytest.mark.parametrize("reply", [[b"x" * 60, b"x" * 41], [b""] * 1025])
async def test_a_reply_that_is_too_large_fails_only_its_call(cluster, reply):
    async def answer(request: Request) -> list[bytes]:
        if request.body == b"wait":
            await release.wait()
        return [b"x" * 100] if request.body else reply

    release = asyncio.Event()
    await cluster.worker(service("it")(answer), message_size_max=100)
    client = await cluster.client(retry=RetryPolicy(attempts=1))
    other = client.start(b"wait", idempotent=False)
    with pytest.raises(RemoteFailure, match=r"the reply has .* the maximum is"):
        await client.call(b"")
    release.set()
    assert (await other).body == b"x" * 100
    assert (await other).attempts == 1


# --- invalid workers and services -----------------------------------------------------------------
def test_a_worker_needs_services_with_different_names():
    url = "mdp://localhost:5555"
    for services in [(), (upper, upper), (upper.handler,), (service("mmi.mine")(Upper()),)]:
        with pytest.raises(ConfigurationError):
            Worker(url, *services)
    with pytest.raises(ConfigurationError, match="must not name a service"):
        Worker(f"{url}/it", upper)
    with pytest.raises(ConfigurationError, match="one request at a time"):
        Worker(url, upper, capacity=2, dialect="0.2")
    with pytest.raises(ConfigurationError):
        Worker(url, upper, heartbeat=0.001)


@pytest.mark.parametrize("name", ["", upper.handler])
def test_a_service_needs_a_name(name):
    with pytest.raises(ConfigurationError, match="needs a name"):
        service(name)


def test_a_handler_has_to_be_callable():
    with pytest.raises(ConfigurationError, match="a function of one request"):
        service("it")(b"echo")  # type: ignore[arg-type]


def test_a_service_can_be_called_like_its_function():
    assert asyncio.run(upper(Request("it", [b"hi"]))) == b"HI"
