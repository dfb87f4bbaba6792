"""`requite.sp.Req` and `Rep` with nng's sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from math import inf

import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.sp_hand import REP, Hands
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_nng import Nng
from tests.support.sp_wires import IPC, TCP, TLS, WS, Place, Places, Wire

import requite
from requite.sp import Rep, Req

pytestmark = pytest.mark.interop

QUIET_S = 0.15


@pytest.fixture
def req(loop: Loop) -> Iterator[Req]:
    """A Req that is closed after the test."""
    req = loop.call(Req)
    yield req
    loop.do(req.close())


@pytest.fixture
def rep(loop: Loop) -> Iterator[Rep]:
    """A Rep that is closed after the test."""
    rep = loop.call(Rep)
    yield rep
    loop.do(rep.close())


def listening(loop: Loop, socket: Req | Rep, place: Place) -> Place:
    """Make a socket listen; return its place."""
    [url] = loop.do(socket.listen(place.listening()))
    return place.as_told(url)


async def serve(rep: Rep, answer: Callable[[bytes], bytes | None] = bytes) -> None:
    """Reply to requests until the socket is closed."""
    while True:
        try:
            request = await rep.receive()
        except requite.Cancelled:
            return
        body = answer(request.body)
        request.cancel() if body is None else request.reply(body)


# --- requests and replies -------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS], ids=str)
def test_req_dials_rep_of_nng(wire: Wire, req: Req, nng: Nng, loop: Loop, places: Places) -> None:
    place = sp_nng.listen(nng.rep().socket, places.new(wire))
    loop.do(req.dial(place.dialling()))
    assert loop.do(req.request(b"hello", timeout=WAIT_S)) == b"hello"


@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS], ids=str)
def test_rep_listens_for_req_of_nng(
    wire: Wire, rep: Rep, nng: Nng, loop: Loop, places: Places
) -> None:
    place = listening(loop, rep, places.new(wire))
    loop.begin(serve(rep))
    asker = nng.req()
    sp_nng.dial(asker.socket, place)
    assert asker.ask(b"hello") == b"hello"


def test_both_may_do_it_the_other_way_round(
    req: Req, rep: Rep, nng: Nng, loop: Loop, places: Places
) -> None:
    sp_nng.dial(nng.rep().socket, listening(loop, req, places.new()))
    assert loop.do(req.request(b"hello", timeout=WAIT_S)) == b"hello"
    asker = nng.req()
    place = sp_nng.listen(asker.socket, places.new())
    loop.do(rep.dial(place.dialling()))
    loop.begin(serve(rep))
    assert asker.ask(b"hello") == b"hello"


def test_many_requests_at_a_time_are_answered_in_any_order(
    req: Req, rep: Rep, loop: Loop, places: Places
) -> None:
    loop.do(req.dial(listening(loop, rep, places.new()).dialling()))

    async def scene() -> list[bytes]:
        asking = [req.send(b"%d" % number) for number in range(50)]
        requests = [await rep.receive() for _ in asking]
        for request in reversed(requests):
            request.reply(request.body * 2)
        return await asyncio.gather(*asking)

    assert loop.do(scene()) == [b"%d" % number * 2 for number in range(50)]


# --- back-pressure, resending and cancelling ------------------------------------------------------
def test_without_anybody_pushback_is_reported(req: Req, loop: Loop) -> None:
    with pytest.raises(requite.Overloaded) as failed:
        loop.call(lambda: req.send(b"x", wait=False))
    assert failed.value.may_have_executed is False


def test_when_all_push_back_that_is_reported_and_nothing_waits(
    req: Req, loop: Loop, hands: Hands, places: Places
) -> None:
    """A service that does not read is full after some requests. Accepted requests are not lost."""
    listener = hands.listen(places.new())
    loop.do(req.dial(listener.place.dialling()))
    service = hands.keep(listener.accept()).greet(REP)
    body = bytes(100_000)

    async def fill() -> list[asyncio.Future[bytes]]:
        taken = []
        while len(taken) < 1000:
            try:
                taken.append(req.send(body, wait=False))
            except requite.Overloaded:
                return taken
            await asyncio.sleep(0)
        raise AssertionError("it takes everything")

    eventually(lambda: loop.call(req.snapshot).channels == 1, "it is connected")
    taken = loop.do(fill())
    for _ in taken:
        service.send(service.receive())
    assert loop.do(asyncio.wait_for(_all(taken), WAIT_S)) == [body] * len(taken)


async def _all(futures: list[asyncio.Future[bytes]]) -> list[bytes]:
    return await asyncio.gather(*futures)


def test_each_request_has_its_own_interval_for_resending(
    req: Req, loop: Loop, hands: Hands, places: Places
) -> None:
    listener = hands.listen(places.new())
    loop.do(req.dial(listener.place.dialling()))
    service = hands.keep(listener.accept()).greet(REP)
    often = loop.begin(req.request(b"often", resend=0.2))
    seldom = loop.begin(req.request(b"seldom", resend=inf))
    never = loop.begin(req.request(b"never", resend=None))
    seen = [service.receive() for _ in range(4)]
    bodies = [request[4:] for request in seen]
    assert sorted(bodies[:3]) == [b"never", b"often", b"seldom"]
    assert bodies[3] == b"often"
    service.close()
    with pytest.raises(requite.TransportError) as failed:
        never.result(WAIT_S)
    assert failed.value.may_have_executed
    service = hands.keep(listener.accept()).greet(REP)
    for _ in range(2):
        service.send(service.receive())
    assert (often.result(WAIT_S), seldom.result(WAIT_S)) == (b"often", b"seldom")


def test_a_cancelled_request_is_not_sent_again(
    req: Req, loop: Loop, hands: Hands, places: Places
) -> None:
    listener = hands.listen(places.new())
    loop.do(req.dial(listener.place.dialling()))
    service = hands.keep(listener.accept()).greet(REP)
    asking = loop.begin(req.request(b"x", resend=0.1))
    service.receive()
    asking.cancel()
    eventually(lambda: loop.call(req.snapshot).sent == 0, "it is forgotten")
    assert service.is_silent(QUIET_S)


def test_a_cancelled_request_gets_no_reply_and_is_asked_again(
    rep: Rep, nng: Nng, loop: Loop, places: Places
) -> None:
    asker = nng.req(resend_time=100)
    sp_nng.dial(asker.socket, listening(loop, rep, places.new()))
    answers = iter([None, b"at last"])
    loop.begin(serve(rep, lambda _body: next(answers)))
    assert asker.ask(b"x") == b"at last"


def test_a_reply_to_somebody_who_has_gone_is_dropped(
    rep: Rep, nng: Nng, loop: Loop, places: Places
) -> None:
    place = listening(loop, rep, places.new())
    gone = nng.req()
    sp_nng.dial(gone.socket, place)
    gone.socket.send(b"x")
    request = loop.do(rep.receive())
    gone.close()
    eventually(lambda: request.is_lost, "it is told")
    loop.call(lambda: request.reply(b"too late"))
    loop.begin(serve(rep))
    asker = nng.req()
    sp_nng.dial(asker.socket, place)
    assert asker.ask(b"y") == b"y"


def test_closing_ends_what_was_asked(req: Req, nng: Nng, loop: Loop, places: Places) -> None:
    place = sp_nng.listen(nng.rep(lambda _body: None).socket, places.new())
    loop.do(req.dial(place.dialling()))
    asking = loop.begin(req.request(b"x"))
    eventually(lambda: loop.call(req.snapshot).sent == 1, "it is out")
    loop.do(req.close())
    with pytest.raises(requite.Cancelled):
        asking.result(WAIT_S)
