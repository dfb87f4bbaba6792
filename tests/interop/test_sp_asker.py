"""REQ with valid and invalid services, byte by byte: requite's client and nng's socket."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic

import pytest
from tests.support import sp_nng
from tests.support.live import eventually
from tests.support.patience import failure
from tests.support.sp_hand import BOTTOM, REP, REQ, HandListener, HandPeer, Hands, header, tags
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_nng import Nng
from tests.support.sp_wires import IPC, TCP, Places, Wire

import requite

pytestmark = pytest.mark.interop

RESEND_S = 0.3
QUIET_S = 0.15

Begin = Callable[[bytes], Future[bytes]]


class Scene:
    """A client that dials a scripted service, with its calls in flight."""

    def __init__(self, begin: Begin, listener: HandListener, hands: Hands) -> None:
        self.begin = begin
        self.listener = listener
        self._hands = hands

    def accept(self) -> HandPeer:
        """Return the next connection of the client, after the exchange of headers."""
        return self._hands.keep(self.listener.accept()).greet(REP)


MakeScene = Callable[..., Scene]


@pytest.fixture(params=["requite", "nng"])
def maker(request: pytest.FixtureRequest) -> str:
    """The implementation of the REQ."""
    maker: str = request.param
    return maker


@pytest.fixture
def make_scene(maker: str, nng: Nng, loop: Loop, hands: Hands, places: Places) -> MakeScene:
    """A function that makes a client. `resend_s` None: the default of one minute."""

    def make(wire: Wire = TCP, resend_s: float | None = None) -> Scene:
        listener = hands.listen(places.new(wire))
        if maker == "nng":
            req = nng.req(**({} if resend_s is None else {"resend_time": int(resend_s * 1000)}))
            sp_nng.dial(req.socket, listener.place)
            return Scene(nng.in_background(req.ask), listener, hands)
        retry = {} if resend_s is None else {"retry": requite.RetryPolicy(attempt_timeout=resend_s)}
        client = loop.client(listener.place, timeout=WAIT_S, **retry)

        async def call(body: bytes) -> bytes:
            return (await client.call(body)).body

        return Scene(lambda body: loop.begin(call(body)), listener, hands)

    return make


# --- requests and replies -------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, IPC], ids=str)
def test_a_request_is_one_tag_and_the_body(make_scene: MakeScene, wire: Wire) -> None:
    scene = make_scene(wire)
    service = scene.accept()
    reply = scene.begin(b"Hello")
    request = service.receive()
    assert request[0] & 0x80
    assert request[4:] == b"Hello"
    service.send(request[:4] + b"World")
    assert reply.result(WAIT_S) == b"World"


def test_the_header_comes_without_waiting_for_ours(make_scene: MakeScene, hands: Hands) -> None:
    scene = make_scene()
    assert hands.keep(scene.listener.accept()).read(8) == header(REQ)


def test_request_ids_go_up_by_one(make_scene: MakeScene) -> None:
    scene = make_scene()
    service = scene.accept()
    ids = []
    for _ in range(5):
        reply = scene.begin(b"x")
        request = service.receive()
        ids.append(int.from_bytes(request[:4], "big"))
        service.send(request)
        reply.result(WAIT_S)
    first = ids[0] & ~BOTTOM
    assert ids == [BOTTOM | (first + number) % BOTTOM for number in range(5)]


def test_each_client_begins_with_another_id(make_scene: MakeScene) -> None:
    firsts = set()
    for _ in range(3):
        scene = make_scene()
        service = scene.accept()
        reply = scene.begin(b"x")
        request = service.receive()
        firsts.add(request[:4])
        service.send(request)
        reply.result(WAIT_S)
    assert len(firsts) == 3


# --- invalid replies ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind", ["empty", "short", "not at the bottom", "stray", "one tag too many", "late"]
)
def test_a_reply_that_is_none_is_ignored(kind: str, maker: str, make_scene: MakeScene) -> None:
    """On a reply of less than four bytes nng closes, redials and resends at once."""
    scene = make_scene()
    service = scene.accept()
    early = scene.begin(b"early")
    old = service.receive()
    service.send(old)
    assert early.result(WAIT_S) == b"early"
    reply = scene.begin(b"x")
    request = service.receive()
    other = (int.from_bytes(request[:4], "big") + 5).to_bytes(4, "big")
    bad = {
        "empty": b"",
        "short": request[:3],
        "not at the bottom": bytes([request[0] & 0x7F]) + request[1:4] + b"wrong",
        "stray": bytes([other[0] | 0x80]) + other[1:] + b"wrong",
        "one tag too many": tags(1) + request[:4] + b"wrong",
        "late": old[:4] + b"wrong",
    }
    service.send(bad[kind])
    if maker == "nng" and kind in ("empty", "short"):
        service = scene.accept()
        assert service.receive() == request
    service.send(request[:4] + b"right")
    assert reply.result(WAIT_S) == b"right"


def test_a_second_reply_reaches_nobody(make_scene: MakeScene) -> None:
    scene = make_scene()
    service = scene.accept()
    for number in range(3):
        reply = scene.begin(b"%d" % number)
        request = service.receive()
        service.send(request)
        service.send(request[:4] + b"again")
        assert reply.result(WAIT_S) == b"%d" % number


# --- resending ------------------------------------------------------------------------------------
def test_an_unanswered_request_is_sent_again_with_its_id(make_scene: MakeScene) -> None:
    """nng checks once per second, so it may be up to 1 s late."""
    scene = make_scene(resend_s=RESEND_S)
    service = scene.accept()
    began = monotonic()
    reply = scene.begin(b"x")
    request = service.receive()
    assert service.receive() == request
    assert monotonic() - began >= RESEND_S * 0.9
    service.send(request)
    assert reply.result(WAIT_S) == b"x"


def test_a_request_is_sent_again_at_once_when_its_connection_ends(make_scene: MakeScene) -> None:
    scene = make_scene()
    service = scene.accept()
    reply = scene.begin(b"x")
    request = service.receive()
    service.close()
    service = scene.accept()
    assert service.receive() == request
    service.send(request)
    assert reply.result(WAIT_S) == b"x"


@pytest.mark.parametrize("said", [b"x", b"x" * 20], ids=["cut header", "cut message"])
def test_a_connection_that_ends_too_early_is_dialled_again(
    said: bytes, make_scene: MakeScene, hands: Hands
) -> None:
    scene = make_scene()
    cut = hands.keep(scene.listener.accept())
    cut.write((header(REP) + (100).to_bytes(8, "big") + b"some of it")[: len(said)])
    cut.close()
    service = scene.accept()
    reply = scene.begin(b"x")
    service.send(service.receive())
    assert reply.result(WAIT_S) == b"x"


# --- invalid services -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "said", [header(REQ), header(16), header(17), b"HTTP/1.1 400 Bad\r\n\r\n"], ids=bytes.hex
)
def test_whoever_is_no_service_is_hung_up_on_and_dialled_again(
    said: bytes, make_scene: MakeScene, hands: Hands
) -> None:
    scene = make_scene()
    reply = scene.begin(b"x")
    stranger = hands.keep(scene.listener.accept())
    stranger.write(said)
    assert stranger.hung_up() in (b"", header(REQ))
    service = scene.accept()
    service.send(service.receive())
    assert reply.result(WAIT_S) == b"x"


def test_the_error_names_the_type_of_a_stranger(loop: Loop, places: Places, nng: Nng) -> None:
    """nng's PAIR socket has the type number that the draft assigns to REQ."""
    import pynng

    with pynng.Pair0() as pair:
        sp_nng.prepare(pair)
        client = loop.client(sp_nng.listen(pair, places.new()))
        error = failure(
            requite.CallError, "PAIR", lambda timeout: loop.ask(client, b"x", timeout=timeout)
        )
    assert not error.may_have_executed
    assert "16" in str(error)


def test_ids_of_the_draft_are_spoken_on_request_only(loop: Loop, places: Places, nng: Nng) -> None:
    place = places.new()
    worker = loop.worker(bind=place.listening(ids="draft"))
    place = place.as_told(str(worker.addresses[0]))
    draft = requite.AsyncClient(place.dialling(ids="draft"))
    usual = requite.AsyncClient(place.dialling())
    try:
        assert loop.ask(draft, b"x") == b"x"
        failure(requite.CallError, "17", lambda timeout: loop.ask(usual, b"x", timeout=timeout))
    finally:
        loop.do(draft.close())
        loop.do(usual.close())


def test_ids_of_the_draft_meet_nobody_at_nng(loop: Loop, places: Places, nng: Nng) -> None:
    place = sp_nng.listen(nng.rep().socket, places.new())
    client = requite.AsyncClient(place.dialling(ids="draft"))
    try:
        error = failure(
            requite.CallError, "49", lambda timeout: loop.ask(client, b"x", timeout=timeout)
        )
        assert not error.may_have_executed
    finally:
        loop.do(client.close())


# --- cancelling -----------------------------------------------------------------------------------
def test_a_cancelled_call_is_forgotten_and_its_reply_ignored(
    loop: Loop, hands: Hands, places: Places
) -> None:
    listener = hands.listen(places.new())
    client = loop.client(listener.place, retry=requite.RetryPolicy(attempt_timeout=RESEND_S))
    service = hands.keep(listener.accept()).greet(REP)
    first = loop.begin(client.call(b"first"))
    request = service.receive()
    first.cancel()
    assert service.is_silent(RESEND_S + QUIET_S)  # nothing is resent
    second = loop.begin(client.call(b"second"))
    service.send(request)
    request = service.receive()
    service.send(request)
    assert second.result(WAIT_S).body == b"second"


def test_nng_cancels_by_asking_anew_and_our_worker_does_not_mind(
    loop: Loop, nng: Nng, places: Places
) -> None:
    req = nng.req()
    sp_nng.dial(req.socket, loop.listening_worker(places.new()))
    for number in range(100):
        req.socket.send(b"forgotten %d" % number)
    assert req.ask(b"last") == b"last"


# --- without resending ----------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["url", "policy", "not idempotent"])
def test_without_resending_the_caller_is_told_when_the_connection_ends(
    how: str, loop: Loop, hands: Hands, places: Places
) -> None:
    listener = hands.listen(places.new())
    options = {"resend": "off"} if how == "url" else {}
    settings = {"retry": requite.RetryPolicy(attempts=1)} if how == "policy" else {}
    client = requite.AsyncClient(listener.place.dialling(**options), **settings)
    try:
        call = loop.begin(client.call(b"x", idempotent=how != "not idempotent"))
        service = hands.keep(listener.accept()).greet(REP)
        service.receive()
        service.close()
        with pytest.raises(requite.TransportError) as failed:
            call.result(WAIT_S)
        assert failed.value.may_have_executed
        service = hands.keep(listener.accept()).greet(REP)
        assert service.is_silent(QUIET_S)
    finally:
        loop.do(client.close())


def test_the_resend_interval_may_be_told_in_the_url(
    loop: Loop, hands: Hands, places: Places
) -> None:
    listener = hands.listen(places.new())
    client = requite.AsyncClient(listener.place.dialling(resend="0.2"))
    try:
        call = loop.begin(client.call(b"x"))
        service = hands.keep(listener.accept()).greet(REP)
        request = service.receive()
        assert service.receive() == request
        service.send(request)
        reply = call.result(WAIT_S)
        assert (reply.body, reply.attempts) == (b"x", 2)
    finally:
        loop.do(client.close())


def test_a_service_that_comes_late_is_waited_for(loop: Loop, nng: Nng, places: Places) -> None:
    place = places.new(IPC)
    client = loop.client(place)
    call = loop.begin(client.call(b"x", timeout=WAIT_S))
    eventually(lambda: not call.done(), "it waits")
    sp_nng.listen(nng.rep().socket, place)
    assert call.result(WAIT_S).body == b"x"
