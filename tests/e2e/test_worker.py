"""`Worker` behind a real broker, on one event loop: handlers of every kind, and their ends."""

from __future__ import annotations

import asyncio
import functools
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress

import pytest
from tests.support.live import Process

from requite import (
    AsyncClient,
    Broker,
    BrokerPolicy,
    CallTimeout,
    ConfigurationError,
    HeartbeatPolicy,
    LocalViolation,
    Partial,
    RemoteFailure,
    Reply,
    Request,
    RetryPolicy,
    Worker,
    WorkerLost,
    service,
)
from requite.worker import Service

pytestmark = pytest.mark.e2e

WAIT_S = 10.0
BRISK = HeartbeatPolicy(interval_s=0.05, liveness=4)


class Stage:
    """A broker, and what plays on it; all is closed at the end of the test, clients first."""

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.broker: Broker

    async def open(self, **policy: object) -> None:
        """Start the broker; `policy` overrides fields of its policy."""
        policy.setdefault("heartbeat", BRISK)
        self.broker = Broker("tcp://127.0.0.1:0", policy=BrokerPolicy(**policy))  # type: ignore[arg-type]
        await self.stack.enter_async_context(self.broker)

    @property
    def url(self) -> str:
        """Where workers and clients find the broker."""
        return self.broker.endpoints[0].replace("tcp://", "mdp://")

    async def worker(self, *services: Service, **settings: object) -> Worker:
        """Start a worker, and wait until the broker knows it."""
        settings.setdefault("heartbeat", BRISK)
        before = self.workers()
        worker = Worker(self.url, *services, **settings)  # type: ignore[arg-type]
        await self.stack.enter_async_context(worker)
        await until(lambda: self.workers() == before + len(services))
        return worker

    async def client(self, name: str = "it", **settings: object) -> AsyncClient:
        """Make a client of the service `name`."""
        settings.setdefault("timeout", WAIT_S)
        client = AsyncClient(f"{self.url}/{name}", **settings)  # type: ignore[arg-type]
        return await self.stack.enter_async_context(client)

    def workers(self) -> int:
        """Return how many workers the broker has."""
        return len(self.broker.snapshot().workers)


async def until(look: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(WAIT_S):
        while not look():  # noqa: ASYNC110 - what it looks at has no event
            await asyncio.sleep(0.002)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    async with stage.stack:
        await stage.open()
        yield stage


# --- the four kinds of handler, and what they may answer ------------------------------------------
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
    """Something that can be called and awaited."""

    async def __call__(self, request: Request) -> bytes:
        return request.body.upper()


async def _upper(how: str, request: Request) -> bytes:
    return request.body.upper() if how == "upper" else b"?"


@pytest.mark.parametrize(
    "handler",
    [
        upper,
        upper_after_a_while,
        upper_in_a_thread,
        service("it")(Upper()),
        service("it")(functools.partial(_upper, "upper")),
    ],
    ids=["async", "suspending", "thread", "object", "partial"],
)
@pytest.mark.parametrize("dialect", ["0.3", "0.2", "0.1"])
async def test_handlers_of_each_kind_answer_many_calls(stage, handler, dialect):
    await stage.worker(handler, dialect=dialect)
    client = await stage.client(dialect=dialect, connections=8)
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
async def test_generators_stream(stage, handler, end, n):
    await stage.worker(handler)
    client = await stage.client()
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
async def test_what_a_handler_may_answer(stage, result, frames):
    @service("it")
    async def answer(request: Request):
        return result

    await stage.worker(answer)
    reply = await (await stage.client()).call([b"any", b"frames"])
    assert reply.frames == frames


@pytest.mark.parametrize("result", ["text", 7, [b"ok", "text"], {b"a": 1}])
async def test_what_a_handler_may_not_answer(stage, result):
    @service("it")
    async def answer(request: Request):
        return result

    await stage.worker(answer)
    with pytest.raises(RemoteFailure, match="TypeError: a handler answers with bytes"):
        await (await stage.client()).call(b"")


# --- failures -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["async", "thread", "async generator", "generator"])
async def test_an_exception_is_a_negative_reply_and_a_line_in_the_log(stage, kind, caplog):
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
    await stage.worker(service("it")(handlers[kind]), capacity=2)
    client = await stage.client()
    for _ in range(5):  # more than the capacity: each failure gives its place back
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b"")
        assert str(caught.value) == "ValueError: no such thing"
        assert caught.value.may_have_executed
    records = [r for r in caplog.records if r.name == "requite.worker"]
    assert records
    assert records[0].levelno == logging.WARNING
    assert records[0].exc_info is not None


class Unspeakable(Exception):
    """An exception that cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("do not ask")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("half a character: \udc80"), "ValueError: half a character: "),
        (StopIteration("at its end"), "RuntimeError: "),  # PEP 479, and threads likewise
        (TimeoutError(), "TimeoutError: "),
        (ExceptionGroup("several", [OSError()]), "ExceptionGroup: several"),
        (Unspeakable(), "Unspeakable"),
        (RemoteFailure("as it is"), "as it is"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("in_thread", [False, True])
async def test_any_exception_gives_its_place_back(stage, error, text, in_thread):
    def fail(request: Request) -> bytes:
        if request.body == b"well":
            return b"well"
        raise error

    async def afail(request: Request) -> bytes:
        return fail(request)

    await stage.worker(service("it")(fail if in_thread else afail), capacity=1)
    client = await stage.client(timeout=3.0)
    for _ in range(2):
        with pytest.raises(RemoteFailure) as caught:
            await client.call(b"")
        assert str(caught.value).startswith(text)
    assert (await client.call(b"well")).body == b"well"


class Odd(BaseException):
    """Not an `Exception`, as the signals of test and task frameworks are."""


@pytest.mark.parametrize(
    ("kind", "in_thread"),
    [(Odd, False), (Odd, True), (SystemExit, True), (KeyboardInterrupt, True)],
)
async def test_what_is_no_exception_gives_its_place_back_too(stage, kind, in_thread):
    def fail(request: Request) -> bytes:
        if request.body == b"well":
            return b"well"
        raise kind("odd")

    async def afail(request: Request) -> bytes:
        return fail(request)

    await stage.worker(service("it")(fail if in_thread else afail), capacity=1)
    client = await stage.client(timeout=3.0)
    for _ in range(2):
        with pytest.raises(RemoteFailure, match=f"{kind.__name__}: odd"):
            await client.call(b"")
    assert (await client.call(b"well")).body == b"well"


@pytest.mark.parametrize("reply", [[b"x" * 60, b"x" * 41], [b""] * 1025])
async def test_a_reply_that_is_too_large_fails_alone(stage, reply):
    async def answer(request: Request) -> list[bytes]:
        if request.body == b"wait":
            await release.wait()
        return [b"x" * 100] if request.body else reply

    release = asyncio.Event()
    await stage.worker(service("it")(answer), message_size_max=100)
    client = await stage.client(retry=RetryPolicy(attempts=1))
    other = client.start(b"wait", idempotent=False)
    with pytest.raises(RemoteFailure, match=r"a reply of .* are allowed"):
        await client.call(b"")
    release.set()
    assert (await other).body == b"x" * 100
    assert (await other).attempts == 1


# --- lanes ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("in_thread", [False, True])
async def test_handlers_that_wait_run_side_by_side_up_to_the_capacity(stage, in_thread):
    together = 4
    barrier = threading.Barrier(together) if in_thread else asyncio.Barrier(together)

    def meet(request: Request) -> bytes:
        barrier.wait(WAIT_S)  # type: ignore[call-arg,unused-coroutine]
        return b"met"

    async def ameet(request: Request) -> bytes:
        await barrier.wait()  # type: ignore[misc]
        return b"met"

    await stage.worker(service("it")(meet if in_thread else ameet), capacity=together)
    client = await stage.client()
    replies = await asyncio.gather(*(client.call(b"") for _ in range(3 * together)))
    assert {reply.body for reply in replies} == {b"met"}


async def test_no_more_handlers_run_at_a_time_than_the_capacity(stage):
    running, most = 0, 0

    @service("it")
    async def busy(request: Request) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return b""

    await stage.worker(busy, capacity=3)
    client = await stage.client()
    await asyncio.gather(*(client.call(b"") for _ in range(50)))
    assert most == 3


async def test_a_handler_has_a_task_of_its_own_around_it(stage):
    seen: list[object] = []

    @service("it")
    async def structured(request: Request) -> bytes:
        seen.append(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(asyncio.sleep(0, b"%d" % n)) for n in range(3)]
        return b"".join(part.result() for part in parts)

    await stage.worker(structured)
    client = await stage.client()
    for _ in range(3):
        assert (await client.call(b"")).body == b"012"
    assert None not in seen


async def test_a_slow_handler_does_not_hold_up_the_quick_ones(stage):
    release = asyncio.Event()

    @service("it")
    async def sometimes_slow(request: Request) -> bytes:
        if request.body == b"slow":
            await release.wait()
        return request.body

    await stage.worker(sometimes_slow, capacity=2)
    client = await stage.client()
    slow = client.start(b"slow")
    for _ in range(10):
        assert (await client.call(b"quick")).body == b"quick"
    release.set()
    assert (await slow).body == b"slow"


# --- cancel and deadline --------------------------------------------------------------------------
async def test_a_cancelled_call_interrupts_its_handler_and_the_lane_lives_on(stage):
    log: list[str] = []

    @service("it")
    async def patient(request: Request) -> bytes:
        if request.body == b"quick":
            return b"quick"
        log.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            log.append("interrupted")
            raise
        return b""

    await stage.worker(patient, capacity=1)
    client = await stage.client()
    for n in range(3):
        call = client.start(b"")
        await until(lambda n=n: len(log) == 2 * n + 1)
        call.cancel()
        await until(lambda n=n: len(log) == 2 * n + 2)
    assert log == ["began", "interrupted"] * 3
    assert (await client.call(b"quick")).body == b"quick"


async def test_a_deadline_interrupts_the_handler_and_what_waited_never_starts(stage):
    started: list[bytes] = []

    @service("it")
    async def patient(request: Request) -> bytes:
        started.append(request.body)
        if request.body == b"last":
            return b"here"
        await asyncio.Event().wait()
        return b""

    await stage.worker(patient, capacity=1)
    client = await stage.client()
    calls = [client.call(b"%d" % n, timeout=0.2) for n in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, CallTimeout) for error in errors)
    assert (await client.call(b"last")).body == b"here"
    assert started == [b"0", b"last"]


async def test_a_handler_may_clean_up_when_it_is_interrupted(stage):
    @service("it")
    async def tidy(request: Request) -> bytes:
        if request.body == b"next":
            return b"next"
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
        return b""

    await stage.worker(tidy, capacity=1)
    client = await stage.client()
    with pytest.raises(CallTimeout):
        await client.call(b"", timeout=0.1)
    assert (await client.call(b"next")).body == b"next"


async def test_an_abandoned_thread_is_left_to_end_and_then_serves_again(stage):
    release = threading.Event()

    @service("it")
    def stubborn(request: Request) -> bytes:
        if request.body == b"stubborn":
            release.wait(WAIT_S)
        return request.body

    await stage.worker(stubborn, capacity=1)
    client = await stage.client()
    with pytest.raises(CallTimeout):
        await client.call(b"stubborn", timeout=0.1)
    following = client.start(b"next")
    await asyncio.sleep(0)
    release.set()
    assert (await following).body == b"next"


async def test_what_was_given_up_while_it_waited_for_a_thread_never_starts(stage):
    ran: list[bytes] = []
    release = threading.Event()

    @service("it")
    def note(request: Request) -> bytes:
        ran.append(request.body)
        assert release.wait(WAIT_S)
        return b""

    await stage.worker(note, capacity=3, threads=1)
    client = await stage.client()
    first, second, third = (client.start(body) for body in (b"first", b"second", b"third"))
    await until(lambda: ran and stage.broker.snapshot().services[0].in_progress == 3)
    second.cancel()
    await until(lambda: stage.broker.snapshot().services[0].in_progress == 2)
    release.set()
    await asyncio.gather(first, third)
    assert ran == [b"first", b"third"]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_an_endless_stream_ends_when_nobody_reads_it_any_more(stage, in_thread):
    ended = threading.Event()

    def endless(request: Request):
        try:
            while True:
                yield b"more"
        finally:
            ended.set()

    async def aendless(request: Request) -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            ended.set()

    await stage.worker(service("it")(endless if in_thread else aendless), capacity=1)
    client = await stage.client()
    parts = client.stream(b"")
    for _ in range(10):
        await anext(parts)
    await parts.aclose()
    await until(ended.is_set)


# --- presence -------------------------------------------------------------------------------------
async def test_a_thread_that_computes_does_not_stop_the_heartbeats(stage):
    go_on = threading.Event()

    @service("it")
    def slow(request: Request) -> bytes:
        go_on.wait(WAIT_S)
        return b"%d" % request.attempt

    await stage.worker(slow)
    call = (await stage.client()).start(b"")
    await asyncio.sleep(3 * BRISK.interval_s * BRISK.liveness)
    assert stage.workers() == 1
    go_on.set()
    assert (await call).body == b"1"


@pytest.mark.parametrize("dialect", ["0.3", "0.2"])
async def test_a_handler_that_hangs_loses_its_request_to_another_worker(stage, dialect):
    @service("it")
    async def hang_at_first(request: Request) -> bytes:
        if request.attempt == 1 and dialect == "0.3":
            await asyncio.Event().wait()
        if not taken:
            taken.append(1)
            await asyncio.Event().wait()
        return b"attempt %d" % request.attempt

    taken: list[int] = [1] if dialect == "0.3" else []
    await stage.worker(hang_at_first, handler_timeout=0.2, dialect=dialect)
    await stage.worker(hang_at_first, handler_timeout=0.2, dialect=dialect)
    reply = await (await stage.client()).call(b"")
    assert reply.body == (b"attempt 2" if dialect == "0.3" else b"attempt 1")


@pytest.mark.parametrize("in_thread", [False, True])
async def test_a_handler_that_shows_progress_keeps_its_request(stage, in_thread):
    def slow(request: Request) -> bytes:
        for _ in range(8):
            threading.Event().wait(0.1)
            request.progress()
        return b"attempt %d" % request.attempt

    async def aslow(request: Request) -> bytes:
        for _ in range(8):
            await asyncio.sleep(0.1)
            request.progress()
        return b"attempt %d" % request.attempt

    handler = service("it")(slow if in_thread else aslow)
    for _ in range(2):
        await stage.worker(handler, handler_timeout=0.4)
    assert (await (await stage.client()).call(b"")).body == b"attempt 1"


async def test_a_worker_that_goes_is_replaced_by_another(stage):
    started = asyncio.Event()

    @service("it")
    async def patient(request: Request) -> bytes:
        if request.attempt == 1:
            started.set()
            await asyncio.Event().wait()
        return b"attempt %d" % request.attempt

    first = await stage.worker(patient)
    client = await stage.client()
    call = client.start(b"")
    once = client.start(b"", idempotent=False)
    await started.wait()
    await stage.worker(patient)
    await first.close()
    assert (await call).body == b"attempt 2"
    with pytest.raises(WorkerLost):
        await once


async def test_a_worker_registers_again_when_its_broker_comes_back(stage):
    await stage.worker(upper)
    client = await stage.client()
    assert (await client.call(b"before")).body == b"BEFORE"
    endpoint = stage.broker.endpoints[0]
    await stage.broker.close()
    waiting = client.start(b"meanwhile")
    stage.broker = Broker(endpoint, policy=BrokerPolicy(heartbeat=BRISK))
    await stage.stack.enter_async_context(stage.broker)
    assert (await waiting).body == b"MEANWHILE"
    assert stage.workers() == 1


async def test_one_worker_serves_several_services(stage):
    async def name(request: Request) -> bytes:
        return request.service.encode()

    await stage.worker(*(service(n)(name) for n in ("a", "b", "c")))
    client = await stage.client("a")
    for n in ("a", "b", "c"):
        assert (await client.call(b"", service=n)).body == n.encode()


async def test_a_request_tells_what_the_handler_may_want_to_know(stage):
    seen: list[Request] = []

    @service("it")
    async def note(request: Request) -> bytes:
        seen.append(request)
        return b""

    await stage.worker(note)
    client = await stage.client()
    await client.call([b"two", b"frames"], timeout=5.0, idempotency_key=b"order-17")
    (request,) = seen
    assert (request.service, request.frames, request.attempt) == ("it", [b"two", b"frames"], 1)
    assert request.idempotency_key == b"order-17"
    assert request.remaining_s is not None
    assert 4.0 < request.remaining_s <= 5.0


# --- the end --------------------------------------------------------------------------------------
@pytest.mark.parametrize("dialect", ["0.3", "0.2"])
async def test_a_drained_worker_finishes_what_it_has_and_takes_nothing_new(stage, dialect):
    release = asyncio.Event()
    served: list[str] = []

    def make(name: str) -> Service:
        @service("it")
        async def patient(request: Request) -> bytes:
            served.append(name)
            if request.body == b"slow":
                await release.wait()
            return name.encode()

        return patient

    first = await stage.worker(make("first"), dialect=dialect)
    client = await stage.client()
    slow = client.start(b"slow")
    await until(lambda: served)
    drain = asyncio.ensure_future(first.drain())
    await until(lambda: dialect != "0.3" or stage.broker.snapshot().workers[0].draining)
    await stage.worker(make("second"), dialect=dialect)
    assert {(await client.call(b"quick")).body for _ in range(20)} == {b"second"}
    assert not drain.done()
    release.set()
    assert (await slow).body == b"first"
    await asyncio.wait_for(drain, WAIT_S)
    await until(lambda: stage.workers() == 1)


async def test_a_drain_is_not_held_up_for_ever(stage):
    @service("it")
    async def hang(request: Request) -> bytes:
        started.set()
        await asyncio.Event().wait()
        return b""

    started = asyncio.Event()
    worker = await stage.worker(hang, drain_timeout=0.1)
    client = await stage.client(retry=RetryPolicy(attempts=1))
    call = client.start(b"", idempotent=False)
    await started.wait()
    await asyncio.wait_for(worker.drain(), WAIT_S)
    with pytest.raises(WorkerLost):
        await call


async def test_a_handler_that_will_not_end_does_not_hold_up_the_close(stage, monkeypatch, caplog):
    monkeypatch.setattr("requite.worker.lanes.CLOSE_S", 0.1)
    deaf = True

    @service("it")
    async def ignore(request: Request) -> bytes:
        started.set()
        while deaf:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)
        return b""

    started = asyncio.Event()
    worker = await stage.worker(ignore)
    client = await stage.client(retry=RetryPolicy(attempts=1))
    call = client.start(b"", idempotent=False)
    await started.wait()
    await asyncio.wait_for(worker.close(), WAIT_S)
    deaf = False
    assert "1 handlers did not end" in caplog.text
    with pytest.raises(WorkerLost):
        await call


SCRIPT = """
import asyncio, sys
import requite

@requite.service("it")
async def slow(request):
    print("started", flush=True)
    await asyncio.sleep(float(request.body))
    return b"finished"

requite.Worker(sys.argv[1], slow).run(lambda: print("serving", flush=True))
print("through", flush=True)
"""


async def in_thread(function: Callable[..., str], *args: object) -> str:
    return await asyncio.wait_for(asyncio.to_thread(function, *args), WAIT_S)


@pytest.fixture
async def process(stage: Stage, processes: list[Process]) -> Process:
    """A worker as a process of its own, registered."""
    processes.append(Process("-c", SCRIPT, stage.url))
    assert await in_thread(processes[0].line) == "serving"
    await until(lambda: stage.workers() == 1)
    return processes[0]


async def test_the_first_sigterm_drains(stage: Stage, process: Process) -> None:
    call = (await stage.client()).start(b"0.3")
    assert await in_thread(process.line) == "started"
    process.signal(signal.SIGTERM)
    assert (await call).body == b"finished"
    assert await in_thread(process.line) == "through"
    assert (await asyncio.to_thread(process.ended))[0] == 0


async def test_the_second_sigterm_stops(stage: Stage, process: Process) -> None:
    call: Awaitable[Reply] = (await stage.client()).start(b"60", idempotent=False)
    assert await in_thread(process.line) == "started"
    process.signal(signal.SIGTERM)
    await until(lambda: stage.broker.snapshot().workers[0].draining)
    process.signal(signal.SIGTERM)
    assert await in_thread(process.line) == "through"
    with pytest.raises(WorkerLost):
        await call
    assert (await asyncio.to_thread(process.ended))[0] == 0


# --- what is refused ------------------------------------------------------------------------------
def test_a_worker_needs_services_with_names_of_their_own():
    url = "mdp://localhost:5555"
    for services in [(), (upper, upper), (upper.handler,), (service("mmi.mine")(Upper()),)]:
        with pytest.raises(ConfigurationError):
            Worker(url, *services)
    with pytest.raises(ConfigurationError, match="names"):
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


def test_a_service_can_be_called_as_the_function_it_is():
    assert asyncio.run(upper(Request("it", [b"hi"]))) == b"HI"


# --- limits of threads, and of one life ----------------------------------------------------------
async def test_with_a_handler_timeout_no_more_is_taken_than_there_are_threads(stage: Stage) -> None:
    """What waits for a thread would use up the time its handler has."""

    @service("it")
    def handler(request: Request) -> bytes:
        threading.Event().wait(0.15)
        return b"%d" % request.attempt

    await stage.open()
    await stage.worker(handler, threads=1, capacity=8, handler_timeout=0.5)
    client = await stage.client()
    replies = [reply async for reply in client.map([b""] * 8)]
    assert [reply.body for reply in replies] == [b"1"] * 8
    assert [worker.capacity for worker in stage.broker.snapshot().workers] == [1]


async def test_a_worker_and_a_broker_start_once(stage: Stage) -> None:
    @service("it")
    async def handler(request: Request) -> bytes:
        return request.body

    await stage.open()
    worker = await stage.worker(handler)
    await worker.drain()
    with pytest.raises(LocalViolation, match="starts once"):
        await worker.start()
    await stage.broker.close()
    with pytest.raises(LocalViolation, match="starts once"):
        await stage.broker.start()
