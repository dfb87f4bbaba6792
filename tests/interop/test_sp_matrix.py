"""REQ and REP over every transport: nng with requite, requite with itself; either side dials.

nng is the library in pynng; requite is `AsyncClient`, `Client` and `Worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pynng
import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.sp_live import Loop
from tests.support.sp_nng import Nng
from tests.support.sp_wires import IPC, TCP, TLS, WIRES, WS, WSS, Place, Places, Wire

import requite

pytestmark = pytest.mark.interop

SIZES = (0, 1, 64 << 10, 1 << 20)
LIMIT = 2000
FAR_OVER = 1 << 20  # the limit leaves room for headers around a body

Ask = Callable[[bytes], bytes]


class Cast:
    """Makes clients and services of each kind, which listen at a place or dial it."""

    def __init__(self, nng: Nng, loop: Loop) -> None:
        self._nng = nng
        self._loop = loop
        self._blocking: list[requite.Client] = []

    def client(self, kind: str, place: Place, listens: bool) -> tuple[Place, Ask]:
        """Return the client's place and a function that makes a call."""
        if kind == "nng":
            req = self._nng.req()
            return sp_nng.join(req.socket, place, listens), req.ask
        where = {"bind": [place.listening()]} if listens else {}
        dialled = [] if listens else [place]
        if kind == "blocking":
            urls = [each.dialling() for each in dialled]
            blocking = requite.Client(urls, **where)
            self._blocking.append(blocking)
            told = blocking.addresses
            return _where(place, told), lambda body: blocking.call(body, timeout=20).body
        client = self._loop.client(*dialled, **where)
        return _where(place, client.addresses), lambda body: self._loop.ask(client, body)

    def service(self, kind: str, place: Place, listens: bool) -> Place:
        """Start an echo service; return its place."""
        if kind == "nng":
            return sp_nng.join(self._nng.rep().socket, place, listens)
        if listens:
            return self._loop.listening_worker(place)
        self._loop.worker(place)
        return place

    def pair(self, client: str, service: str, place: Place, listener: str) -> Ask:
        """Start both; return a function that makes a call."""
        if listener == "service":
            place = self.service(service, place, listens=True)
            return self.client(client, place, listens=False)[1]
        place, ask = self.client(client, place, listens=True)
        self.service(service, place, listens=False)
        return ask

    def close(self) -> None:
        """Close the blocking clients; the loop and nng close the others."""
        for client in self._blocking:
            client.close()


def _where(place: Place, told: object) -> Place:
    return place.as_told(str(told[0])) if told else place  # type: ignore[index]


@pytest.fixture
def cast(nng: Nng, loop: Loop) -> Iterator[Cast]:
    """A maker of clients and services."""
    cast = Cast(nng, loop)
    yield cast
    cast.close()


def assert_replies(ask: Ask) -> None:
    for size in SIZES:
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        assert ask(body) == body


@pytest.mark.parametrize("listener", ["service", "client"])
@pytest.mark.parametrize(
    ("client", "service"),
    [
        ("nng", "requite"),
        ("async", "nng"),
        ("blocking", "nng"),
        ("async", "requite"),
        ("blocking", "requite"),
    ],
)
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_bodies_of_all_sizes_go_there_and_back(
    wire: Wire, client: str, service: str, listener: str, cast: Cast, places: Places
) -> None:
    assert_replies(cast.pair(client, service, places.new(wire), listener))


@pytest.mark.parametrize(("client", "service"), [("nng", "requite"), ("async", "nng")])
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_uvloop_makes_no_difference(
    wire: Wire, client: str, service: str, nng: Nng, places: Places
) -> None:
    loop = Loop(uvloop=True)
    try:
        assert_replies(Cast(nng, loop).pair(client, service, places.new(wire), "service"))
    finally:
        loop.close()


def test_a_worker_serves_all_its_transports_at_once(nng: Nng, loop: Loop, places: Places) -> None:
    listening = [places.new(wire) for wire in WIRES]
    worker = loop.worker(bind=[place.listening() for place in listening])
    for place, told in zip(listening, worker.addresses, strict=True):
        req = nng.req()
        sp_nng.dial(req.socket, place.as_told(str(told)))
        assert req.ask(str(place).encode()) == str(place).encode()


def test_a_client_may_listen_and_dial_at_once(nng: Nng, loop: Loop, places: Places) -> None:
    dialled = sp_nng.listen((one := nng.rep()).socket, places.new())
    client = loop.client(dialled, bind=[places.new(IPC).listening(), places.new(WS).listening()])
    reps = [one]
    for wire, told in zip((IPC, WS), client.addresses, strict=True):
        reps.append(nng.rep())
        place = Place(wire, places.certificates, file=str(told).removeprefix("sp+ipc://"))
        if wire is WS:
            place = places.new(WS).as_told(str(told))
        sp_nng.dial(reps[-1].socket, place)

    def all_asked() -> bool:
        loop.ask(client, b"x")
        return all(rep.requests for rep in reps)

    eventually(all_asked, "each of the three services was asked")


def test_many_calls_at_a_time_share_a_connection(nng: Nng, loop: Loop, places: Places) -> None:
    """`map` keeps 64 calls in flight. nng replies from 16 contexts, so out of order."""
    rep = nng.rep_with_contexts(16)
    client = loop.client(sp_nng.listen(rep.socket, places.new()))
    bodies = [b"%d" % number for number in range(2000)]

    async def ask_all() -> list[bytes]:
        return [reply.body async for reply in client.map(bodies, concurrency=64)]

    assert loop.do(ask_all()) == bodies


def test_many_contexts_of_nng_are_served_at_a_time(nng: Nng, loop: Loop, places: Places) -> None:
    req = nng.req()
    sp_nng.dial(req.socket, loop.listening_worker(places.new()))
    contexts = [req.socket.new_context() for _ in range(100)]
    for number, context in enumerate(contexts):
        context.send(b"%d" % number)
    assert [context.recv() for context in contexts] == [b"%d" % number for number in range(100)]
    for context in contexts:
        context.close()


# --- certificates ---------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TLS, WSS], ids=str)
def test_our_worker_takes_clients_of_nng_that_show_a_good_certificate(
    wire: Wire, nng: Nng, loop: Loop, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    place = places.new(wire)
    worker = loop.worker(bind=place.listening(ca=str(places.certificates.ca)))
    place = place.as_told(worker.addresses[0])
    known, unknown = nng.req(), nng.req(send_timeout=300)
    sp_nng.dial(unknown.socket, place)
    sp_nng.dial(known.socket, place, **sp_nng.own(place))
    assert known.ask(b"x") == b"x"
    with pytest.raises(pynng.Timeout):
        unknown.ask(b"x")
    assert "handshake failed: " in caplog.text  # nng may disconnect before it gets the reason


@pytest.mark.parametrize("wire", [TLS, WSS], ids=str)
def test_our_client_shows_its_certificate_to_nng_where_it_is_asked_for(
    wire: Wire, nng: Nng, loop: Loop, places: Places
) -> None:
    checks = {
        "ca_string": places.certificates.ca.read_text(),
        "auth_mode": pynng.TLSConfig.AUTH_MODE_REQUIRED,
    }
    place = sp_nng.listen(nng.rep().socket, places.new(wire), **checks)
    files = places.certificates
    own = {"certificate": str(files.certificate), "key": str(files.key)}
    known = requite.AsyncClient(place.dialling(**own))
    unknown = requite.AsyncClient(place.dialling(), timeout=0.5)
    try:
        assert loop.ask(known, b"x") == b"x"
        with pytest.raises(requite.CallTimeout):
            loop.ask(unknown, b"x")
    finally:
        loop.do(known.close())
        loop.do(unknown.close())


# --- beyond the limit -----------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, IPC, TLS], ids=str)
def test_a_request_over_our_limit_costs_its_sender_the_connection_and_nobody_else(
    wire: Wire, nng: Nng, loop: Loop, places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """Not with WebSockets: nng aborts the process when one is closed during a send."""
    place = loop.listening_worker(places.new(wire), message_size_max=LIMIT)
    good, bad = nng.req(), nng.req()
    for req in (good, bad):
        sp_nng.dial(req.socket, place)
    assert good.ask(b"x" * LIMIT) == b"x" * LIMIT
    bad.socket.send(bytes(FAR_OVER))
    eventually(lambda: "the maximum is" in caplog.text, "the log tells of it")
    assert good.ask(b"well?") == b"well?"
    assert bad.ask(b"shorter") == b"shorter"


@pytest.mark.parametrize("wire", [TCP, IPC, TLS], ids=str)
def test_a_reply_over_our_limit_ends_the_call_with_an_error(
    wire: Wire, nng: Nng, loop: Loop, places: Places
) -> None:
    """Not with WebSockets: nng aborts the process when one is closed during a send."""
    rep = nng.rep(lambda body: body * LIMIT)
    client = loop.client(sp_nng.listen(rep.socket, places.new(wire)), message_size_max=LIMIT)
    assert loop.ask(client, b"x") == b"x" * LIMIT
    with pytest.raises(requite.CallTimeout) as failed:
        loop.ask(client, b"x" * 100, timeout=1.5)
    assert failed.value.may_have_executed
    assert loop.ask(client, b"y") == b"y" * LIMIT


def test_a_request_over_the_limit_of_nng_ends_with_an_error(
    nng: Nng, loop: Loop, places: Places
) -> None:
    rep = nng.rep(recv_max_size=LIMIT)
    client = loop.client(sp_nng.listen(rep.socket, places.new()))
    with pytest.raises(requite.CallTimeout):
        loop.ask(client, b"x" * 2 * LIMIT, timeout=0.5)
    assert loop.ask(client, b"y") == b"y"
