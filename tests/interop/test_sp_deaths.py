"""Processes are killed and restarted: each request still gets its reply."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from concurrent.futures import Future

import pytest
from tests.support import sp_nng
from tests.support.live import Process, eventually
from tests.support.sp_hand import REP, Hands
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_nng import Nng
from tests.support.sp_services import SWALLOW
from tests.support.sp_wires import IPC, Place, Places

import requite

pytestmark = pytest.mark.interop

OURS, THEIRS = "requite", "nng"
RETRY = requite.RetryPolicy(attempts=10, attempt_timeout=0.4)

Begin = Callable[[bytes], Future[bytes]]


class Troupe:
    """Starts services, clients and devices as processes."""

    def __init__(self, processes: list[Process], places: Places) -> None:
        self._processes = processes
        self.places = places

    def service(self, maker: str, place: Place, **env: str) -> Process:
        """Start a service; return once it listens."""
        if maker == THEIRS:
            return self._start("nng_service", place.nng, **env)
        return self._start("service", place.listening(), **env)

    def dialling_service(self, place: Place, **env: str) -> Process:
        """Start a requite service that dials."""
        return self._start("dialling_service", place.dialling(), **env)

    def identity(self, place: Place) -> Process:
        """Start a requite service that replies with its process id."""
        return self._start("identity", place.listening())

    def client(self, maker: str, place: Place, body: str) -> Process:
        """Start a client that makes one call."""
        if maker == THEIRS:
            return self._start("nng_client", place.nng, body, says="")
        return self._start("client", place.dialling(), body, says="")

    def device(self, front: Place, back: Place) -> Process:
        """Start a requite device; return once its front listens."""
        return self._start("device", front.listening(), back.dialling())

    def _start(self, role: str, *arguments: str, says: str = "ing", **env: str) -> Process:
        process = Process("-m", "tests.support.sp_services", role, *arguments, **env)
        self._processes.append(process)
        assert not says or process.line().endswith(says)
        return process


@pytest.fixture
def troupe(processes: list[Process], places: Places) -> Troupe:
    """The processes of a test."""
    return Troupe(processes, places)


def asker(maker: str, place: Place, nng: Nng, loop: Loop) -> Begin:
    """Return a function that starts a call of a client that dials the place."""
    if maker == THEIRS:
        req = nng.req()
        sp_nng.dial(req.socket, place)
        return nng.in_background(req.ask)
    if maker == "blocking":
        blocking = requite.Client(place.dialling(), timeout=WAIT_S)

        def call_blocking(body: bytes) -> bytes:
            with blocking:
                return blocking.call(body).body

        return nng.in_background(call_blocking)
    client = loop.client(place, timeout=WAIT_S)

    async def call(body: bytes) -> bytes:
        return (await client.call(body)).body

    return lambda body: loop.begin(call(body))


@pytest.mark.parametrize(
    ("client", "service"),
    [("async", THEIRS), ("blocking", THEIRS), (THEIRS, OURS), ("async", OURS)],
)
def test_a_service_is_killed_with_the_request_and_comes_back(
    client: str, service: str, nng: Nng, loop: Loop, troupe: Troupe
) -> None:
    place = troupe.places.new(IPC)
    first = troupe.service(service, place, **{SWALLOW: "1"})
    reply = asker(client, place, nng, loop)(b"hello")
    assert first.line() == "got hello"
    first.kill()
    second = troupe.service(service, place)
    assert second.line() == "got hello"
    assert reply.result(WAIT_S) == b"HELLO"


@pytest.mark.parametrize("client", ["async", THEIRS])
def test_a_service_that_dials_is_killed_and_another_one_answers(
    client: str, nng: Nng, loop: Loop, troupe: Troupe
) -> None:
    """The client listens. The second service has dialled it before the first one dies."""
    place = troupe.places.new(IPC)
    if client == THEIRS:
        req = nng.req()
        sp_nng.listen(req.socket, place)
        begin = nng.in_background(req.ask)
    else:
        listening = loop.client(bind=[place.listening()], timeout=WAIT_S)

        async def call(body: bytes) -> bytes:
            return (await listening.call(body)).body

        def begin(body: bytes) -> Future[bytes]:
            return loop.begin(call(body))

    first = troupe.dialling_service(place, **{SWALLOW: "1"})
    reply = begin(b"hello")
    assert first.line() == "got hello"
    second = troupe.dialling_service(place)
    first.kill()
    assert second.line() == "got hello"
    assert reply.result(WAIT_S) == b"HELLO"


@pytest.mark.parametrize("client", [OURS, THEIRS])
def test_a_client_is_killed_and_its_request_is_given_up(
    client: str, nng: Nng, troupe: Troupe
) -> None:
    """The worker notices and cancels the handler. Other clients are served as before."""
    place = troupe.places.new(IPC)
    service = troupe.service(OURS, place, **{SWALLOW: "1"})
    victim = troupe.client(client, place, "hello")
    assert service.line() == "got hello"
    victim.kill()
    assert service.line() == "abandoned hello"
    troupe.client(client, place, "again")
    assert service.line() == "got again"


def test_a_client_that_listens_is_killed_and_comes_back(
    nng: Nng, loop: Loop, troupe: Troupe
) -> None:
    """The worker redials it."""
    place = troupe.places.new(IPC)
    victim = nng.req()
    sp_nng.listen(victim.socket, place)
    loop.worker(place)
    assert victim.ask(b"x") == b"x"
    victim.close()
    again = nng.req()
    sp_nng.listen(again.socket, place)
    assert again.ask(b"y") == b"y"


@pytest.mark.parametrize(
    ("client", "service"), [("async", THEIRS), (THEIRS, OURS), ("async", OURS)]
)
def test_a_device_is_killed_on_the_way_and_comes_back(
    client: str, service: str, nng: Nng, loop: Loop, troupe: Troupe
) -> None:
    front, back = troupe.places.new(IPC), troupe.places.new(IPC)
    first = troupe.service(service, back, **{SWALLOW: "1"})
    device = troupe.device(front, back)
    reply = asker(client, front, nng, loop)(b"hello")
    assert first.line() == "got hello"
    device.kill()
    first.kill()
    second = troupe.service(service, back)
    troupe.device(front, back)
    assert second.line() == "got hello"
    assert reply.result(WAIT_S) == b"HELLO"


@pytest.mark.parametrize("client", ["async", THEIRS])
def test_a_reply_on_a_path_through_a_dead_device_leads_nowhere(
    client: str, nng: Nng, loop: Loop, hands: Hands, troupe: Troupe
) -> None:
    """The next device does not know the channel, and the client resends."""
    front, listener = troupe.places.new(IPC), hands.listen(troupe.places.new(IPC))
    device = troupe.device(front, listener.place)
    service = hands.keep(listener.accept()).greet(REP)
    reply = asker(client, front, nng, loop)(b"hello")
    old = service.receive()
    device.kill()
    troupe.device(front, listener.place)
    service = hands.keep(listener.accept()).greet(REP)
    service.send(old[:8] + b"stale")
    new = service.receive()
    assert new[4:] == old[4:]
    service.send(new[:8] + b"fresh")
    assert reply.result(WAIT_S) == b"fresh"


def test_a_frozen_service_is_passed_over_after_the_resend_interval(
    loop: Loop, troupe: Troupe
) -> None:
    places = [troupe.places.new(IPC) for _ in range(2)]
    services = [troupe.identity(place) for place in places]
    pids = {str(service.pid).encode() for service in services}
    client = loop.client(*places, retry=RETRY)
    seen: set[bytes] = set()
    eventually(lambda: seen.add(loop.ask(client, b"")) or seen == pids, "both are connected")
    services[0].signal(signal.SIGSTOP)
    try:
        replies = [loop.do(client.call(b"", timeout=WAIT_S)) for _ in range(4)]
        assert {reply.body for reply in replies} == {str(services[1].pid).encode()}
        assert any(reply.attempts > 1 for reply in replies)
    finally:
        services[0].signal(signal.SIGCONT)


def test_a_storm_of_deaths_loses_nothing(loop: Loop, troupe: Troupe) -> None:
    """A service is killed and restarted during calls. Each call gets its own reply."""
    place = troupe.places.new(IPC)
    client = loop.client(place, timeout=WAIT_S)
    bodies = [b"%d" % number for number in range(300)]

    async def ask_all() -> list[bytes]:
        return [reply.body async for reply in client.map(bodies, concurrency=4)]

    asking = loop.begin(ask_all())
    for _ in range(3):
        service = troupe.service(OURS, place)
        for _ in range(20):
            service.line()
        service.kill()
    troupe.service(OURS, place)
    assert asking.result(WAIT_S) == bodies


def test_a_port_is_free_again_at_once(troupe: Troupe) -> None:
    """A killed worker leaves connections behind, but the next worker can listen."""
    with socket.socket() as holder:  # reserves the port without listening
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        place = troupe.places.new().at(holder.getsockname()[1])
        first = troupe.service(OURS, place)
        client = troupe.client(OURS, place, "x")
        assert client.line() == "reply X"
        first.kill()
        troupe.service(OURS, place)
