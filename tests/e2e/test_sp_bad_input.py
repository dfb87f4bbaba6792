"""Bad input on real sockets, over SP: clear errors, nothing hangs, nothing leaks, others go on.

Each test keeps a good client of a worker, on a connection of its own, which must be served
afterwards as before; and all file descriptors that a test made must be gone when it has ended.
"""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.support import sp_web
from tests.support.descriptors import how_many, none_left
from tests.support.live import eventually
from tests.support.patience import failure
from tests.support.sp_hand import REP, REQ, HandPeer, Hands, deep, hands, header
from tests.support.sp_live import WAIT_S, Loop, echo
from tests.support.sp_web import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, read_frame
from tests.support.sp_wires import (
    IPC,
    TCP,
    TLS,
    WS,
    WSS,
    Place,
    Places,
    Wire,
    certificates,
    places,
)

import requite
from requite.shell.link import LinkLimits

__all__ = ["certificates", "hands", "places"]

pytestmark = pytest.mark.e2e

LIMIT = 1 << 16


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Let each kind of event loop make what it keeps for as long as the process lives."""
    for uvloop in (False, True):
        Loop(uvloop=uvloop).close()


@pytest.fixture(autouse=True)
def no_leaks(hands: Hands) -> Iterator[None]:
    """See that a test leaves no file descriptor behind."""
    with none_left():
        yield
        hands.close()


both_loops = pytest.mark.parametrize(
    "loop", [False, True], ids=["asyncio", "uvloop"], indirect=True
)


@pytest.fixture
def loop(request: pytest.FixtureRequest, no_leaks: None) -> Iterator[Loop]:
    """An event loop: asyncio's, and with `both_loops` uvloop's, too."""
    loop = Loop(uvloop=getattr(request, "param", False))
    yield loop
    loop.close()


class Scene:
    """A worker that listens on a wire, and a good client."""

    def __init__(self, loop: Loop, place: Place) -> None:
        self.loop = loop
        self.place = loop.listening_worker(place, message_size_max=LIMIT)
        self.client = loop.client(self.place)
        self.check()

    def check(self) -> None:
        """See that the good client is served, at once and on its first connection."""
        reply = self.loop.do(self.client.call(b"are you well?", timeout=WAIT_S))
        assert (reply.body, reply.attempts) == (b"are you well?", 1)


@pytest.fixture
def scene(loop: Loop, places: Places) -> Scene:
    """A worker on TCP."""
    return Scene(loop, places.new())


@pytest.fixture
def web(loop: Loop, places: Places) -> Scene:
    """A worker on a WebSocket."""
    return Scene(loop, places.new(WS))


# --- bytes ----------------------------------------------------------------------------------------
MESSAGE = deep(3) + b"Hello"
GOOD = header(REQ) + len(MESSAGE).to_bytes(8, "big") + MESSAGE


@both_loops
def test_a_conversation_cut_after_any_byte(scene: Scene) -> None:
    for end in range(len(GOOD)):
        with HandPeer.dial(scene.place) as peer:
            peer.write(GOOD[:end])
    scene.check()


def test_a_conversation_damaged_at_any_byte(scene: Scene) -> None:
    source = random.Random("damage")
    for at in range(len(GOOD)):
        damaged = bytearray(GOOD)
        damaged[at] ^= source.randrange(1, 256)
        with HandPeer.dial(scene.place) as peer:
            peer.write(bytes(damaged))
    scene.check()


@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS, WSS], ids=str)
def test_noise(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    source = random.Random(wire.name)
    for _ in range(50):
        with HandPeer.dial(scene.place) as peer:
            peer.write(source.randbytes(source.randrange(1, 2000)))
    scene.check()


@both_loops
def test_a_message_of_two_to_the_63_bytes_is_refused_before_it_comes(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with HandPeer.dial(scene.place) as peer:
        peer.greet(REQ)
        peer.write((1 << 63).to_bytes(8, "big"))
        assert peer.hung_up() == b""
    assert str(1 << 63) in caplog.text
    assert "are allowed" in caplog.text
    scene.check()


# --- silence --------------------------------------------------------------------------------------
SILENCE_S = 0.2


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long for a header."""
    limits = LinkLimits(handshake_timeout_s=SILENCE_S)
    monkeypatch.setattr("requite.speaks.sp.LINK_LIMITS", limits)


@pytest.mark.parametrize("wire", [TCP, IPC, TLS, WS, WSS], ids=str)
@pytest.mark.usefixtures("hasty")
def test_a_header_that_never_comes_is_not_waited_for(
    wire: Wire, loop: Loop, places: Places, hands: Hands, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(loop, places.new(wire))
    silent = [hands.dial(scene.place) for _ in range(5)]
    silent[1].write(header(REQ)[:7])
    silent[2].write(b"GET /rpc HTTP/1.1\r\nHost: x\r\n")
    for peer in silent:
        peer.hung_up()
    assert f"within {SILENCE_S:g} s" in caplog.text
    scene.check()


@pytest.mark.usefixtures("hasty")
@both_loops
def test_who_has_said_its_header_may_be_silent(scene: Scene, hands: Hands) -> None:
    client, other = hands.client(scene.place), hands.dial(scene.place)
    other.hung_up()
    client.send(deep(1) + b"x")
    assert client.receive() == deep(1) + b"x"


@pytest.mark.usefixtures("hasty")
def test_a_service_that_never_says_its_header_is_told_to_the_caller(
    loop: Loop, places: Places, hands: Hands
) -> None:
    listener = hands.listen(places.new())
    client = loop.client(listener.place)
    error = failure(
        requite.CallTimeout,
        f"within {SILENCE_S:g} s",
        lambda timeout: loop.ask(client, b"x", timeout=timeout),
    )
    assert error.may_have_executed is False


# --- WebSockets -----------------------------------------------------------------------------------
@both_loops
def test_a_request_in_pieces_between_which_there_are_pings(web: Scene, hands: Hands) -> None:
    peer = sp_web.open_client(hands.dial(web.place))
    peer.write(sp_web.frame(MESSAGE[:5], BINARY, final=False))
    peer.write(sp_web.frame(b"still there?", PING))
    peer.write(sp_web.frame(MESSAGE[5:], CONTINUATION))
    assert read_frame(peer) == (PONG, b"still there?", True)
    assert read_frame(peer) == (BINARY, MESSAGE, True)
    peer.write(sp_web.frame((1000).to_bytes(2, "big"), CLOSE))
    assert read_frame(peer).opcode == CLOSE
    assert peer.hung_up() == b""
    web.check()


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (sp_web.frame(b"Hello", TEXT), 1003),
        (sp_web.frame(MESSAGE, mask=False), 1002),
        (sp_web.frame(MESSAGE, 3), 1002),
        (sp_web.frame(MESSAGE, CONTINUATION), 1002),
        (sp_web.frame(b"x" * 126, PING), 1002),
        (b"\xff" * 20, 1002),
        (sp_web.frame(b"")[:1] + b"\xff" + (1 << 62).to_bytes(8, "big") + bytes(4), 1009),
        (sp_web.frame(bytes(LIMIT // 2), final=False) + sp_web.frame(bytes(LIMIT), 0), 1009),
    ],
    ids=["text", "no mask", "unknown", "continues nothing", "long ping", "noise", "2^62", "long"],
)
def test_a_frame_that_breaks_the_rules_closes_its_websocket(
    bad: bytes, code: int, web: Scene, hands: Hands
) -> None:
    peer = sp_web.open_client(hands.dial(web.place))
    peer.write(bad)
    closing = read_frame(peer)
    assert (closing.opcode, int.from_bytes(closing.payload[:2], "big")) == (CLOSE, code)
    peer.write(sp_web.frame(closing.payload, CLOSE))
    assert peer.hung_up() == b""
    web.check()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (sp_web.asking(protocol="req.sp.nanomsg.org"), 400),
        (sp_web.asking(protocol="pair.sp.nanomsg.org"), 400),
        (sp_web.asking(protocol=None), 400),
        (sp_web.asking("/elsewhere"), 404),
        (sp_web.asking(Upgrade=""), 426),
        (sp_web.asking(Sec_WebSocket_Version="8"), 426),
        (sp_web.asking(Sec_WebSocket_Key=""), 400),
        (b"GET /rpc HTTP/1.1\r\nHost: x\r\n\r\n", 426),
        (b"POST /rpc HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 426),
    ],
    ids=[
        "REQ",
        "PAIR",
        "no protocol",
        "another path",
        "no upgrade",
        "old version",
        "no key",
        "GET",
        "POST",
    ],
)
def test_a_websocket_that_is_none_of_ours_is_refused_in_http(
    request_: bytes, status: int, web: Scene, hands: Hands
) -> None:
    peer = hands.dial(web.place)
    peer.write(request_)
    assert sp_web.read_head(peer).startswith(b"HTTP/1.1 %d " % status)
    peer.hung_up()
    web.check()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(("path", "status"), [("/rpc", 426), ("/elsewhere", 404)])
def test_an_http_client_understands_the_refusal(
    method: str, path: str, status: int, web: Scene
) -> None:
    with closing(HTTPConnection("127.0.0.1", web.place.port, timeout=WAIT_S)) as client:
        client.request(method, path, b"hello" if method == "POST" else None)
        answer = client.getresponse()
        body = answer.read()
    assert answer.status == status
    assert answer.will_close
    assert answer.getheader("Upgrade") == ("websocket" if status == 426 else None)
    assert bool(body) == (method != "HEAD")
    web.check()


def test_a_head_of_http_without_an_end_is_refused(web: Scene, hands: Hands) -> None:
    peer = hands.dial(web.place)
    peer.write(b"GET /rpc HTTP/1.1\r\n")
    for _ in range(2000):
        peer.write(b"X-Padding: " + b"x" * 1000 + b"\r\n")
    peer.hung_up()
    web.check()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP"),
        ("", "rep.sp.nanomsg.org"),
        ("req.sp.nanomsg.org", "req.sp.nanomsg.org"),
    ],
)
def test_what_is_no_websocket_of_a_rep_is_told_to_the_caller(
    answer: bytes | str, told: str, loop: Loop, places: Places, hands: Hands
) -> None:
    listener = hands.listen(places.new(WS))
    client = loop.client(listener.place)
    call = loop.begin(client.call(b"x", timeout=1.2))
    peer = hands.keep(listener.accept())
    head = sp_web.read_head(peer)
    peer.write(answer if isinstance(answer, bytes) else sp_web.accepting(head, answer))
    with pytest.raises(requite.CallTimeout) as failed:
        call.result(WAIT_S)
    assert failed.value.may_have_executed is False
    assert told.lower() in str(failed.value).lower()


# --- TLS ------------------------------------------------------------------------------------------
def fail(loop: Loop, url: str, words: str = "") -> str:
    """Make a call that never leaves; return what is said of it, in which these words are."""
    client = requite.AsyncClient(url)
    try:
        error = failure(
            requite.CallTimeout,
            words,
            lambda timeout: loop.do(client.call(b"x", timeout=timeout)),
        )
    finally:
        loop.do(client.close())
    assert error.may_have_executed is False
    return str(error)


@pytest.mark.parametrize("wire", [TLS, WSS], ids=str)
def test_a_certificate_of_a_stranger_is_refused(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    fail(loop, scene.place.dialling(ca=str(places.certificates.other_ca)), "certificate")
    told = fail(loop, scene.place.dialling(server_name="elsewhere.example"), "certificate")
    assert "elsewhere.example" in told
    scene.check()


@both_loops
def test_a_certificate_for_another_name_is_refused(loop: Loop, places: Places) -> None:
    files = places.certificates
    place = places.new(TLS)
    options = {"certificate": str(files.wrong_name), "key": str(files.wrong_name_key)}
    worker = loop.worker(bind=place.listening(**options))
    told = fail(loop, place.as_told(worker.addresses[0]).dialling(), "certificate")
    assert "127.0.0.1" in told


def test_a_client_shows_its_certificate_where_it_is_asked_for(loop: Loop, places: Places) -> None:
    files = places.certificates
    place = places.new(TLS)
    worker = loop.worker(bind=place.listening(ca=str(files.ca)))
    place = place.as_told(worker.addresses[0])
    own = {"certificate": str(files.certificate), "key": str(files.key)}
    good = requite.AsyncClient(place.dialling(**own))
    try:
        assert loop.ask(good, b"x") == b"x"
        fail(loop, place.dialling())
        assert loop.ask(good, b"y") == b"y"
    finally:
        loop.do(good.close())


@pytest.mark.usefixtures("hasty")
def test_the_blocking_client_says_the_same(loop: Loop, places: Places, hands: Hands) -> None:
    secret, listener = Scene(loop, places.new(TLS)), hands.listen(places.new())
    plain = Place(TLS, places.certificates, Scene(loop, places.new()).place.port)
    for url, told in (
        (secret.place.dialling(ca=str(places.certificates.other_ca)), "certificate"),
        (plain.dialling(), "TLS"),
        (listener.place.dialling(), f"within {SILENCE_S:g} s"),
        ("sp+tcp://127.0.0.1:1", "refused"),
    ):
        with requite.Client(url) as client:
            error = failure(
                requite.CallTimeout,
                told,
                lambda timeout, client=client: client.call(b"x", timeout=timeout),
            )
        assert error.may_have_executed is False
    secret.check()


@both_loops
def test_tls_and_plain_do_not_meet(loop: Loop, places: Places) -> None:
    plain, secret = Scene(loop, places.new()), Scene(loop, places.new(TLS))
    fail(loop, Place(TLS, places.certificates, plain.place.port).dialling(), "TLS")
    fail(loop, Place(TCP, places.certificates, secret.place.port).dialling())
    for scene in (plain, secret):
        scene.check()


@both_loops
def test_a_handshake_of_tls_cut_anywhere(loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(TLS))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=places.certificates.ca)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    for end in range(0, len(hello), 20):
        with socket.create_connection(("127.0.0.1", scene.place.port), WAIT_S) as peer:
            peer.sendall(hello[:end])
    scene.check()


# --- listening ------------------------------------------------------------------------------------
def refused(loop: Loop, url: str) -> list[str]:
    """Return what a worker, a device, and clients say that cannot listen there."""
    said = []
    device = requite.sp.Device(front=[url], connect_back=["sp+tcp://127.0.0.1:1"])
    for endpoint in (requite.Worker(echo, bind=url), device):
        with pytest.raises(requite.TransportError) as failed:
            loop.do(endpoint.start())
        loop.do(endpoint.close())
        said.append(str(failed.value))
    client = requite.AsyncClient(bind=url)
    with pytest.raises(requite.TransportError) as failed:
        loop.do(client.__aenter__())
    loop.do(client.close())
    said.append(str(failed.value))
    with pytest.raises(requite.TransportError) as failed, requite.Client(bind=url) as blocking:
        blocking.call(b"x", timeout=1)
    return [*said, str(failed.value)]


@pytest.mark.parametrize("wire", [TCP, TLS, WS, IPC], ids=str)
@both_loops
def test_an_address_in_use_is_refused(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    for said in refused(loop, scene.place.listening()):
        assert "in use" in said or "another process listens there" in said
        assert scene.place.listening().partition("?")[0].removeprefix("sp+") in said
    scene.check()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sp+tcp://192.0.2.1:7000", "192.0.2.1"),
        ("sp+tcp://no-such-host.invalid:7000", "no-such-host.invalid"),
        ("sp+ipc:///nowhere/to/be/found.sock", "/nowhere/to/be/found.sock"),
    ],
)
def test_an_address_that_is_not_ours_is_refused(url: str, told: str, loop: Loop) -> None:
    for said in refused(loop, url):
        assert told in said


@both_loops
def test_a_stale_socket_is_replaced_and_any_other_file_is_not(loop: Loop, places: Places) -> None:
    stale, other = places.new(IPC), places.new(IPC)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(stale.file)
        listener.listen()
    Scene(loop, stale)
    Path(other.file).write_text("precious")
    for said in refused(loop, other.listening()):
        assert other.file in said
    assert Path(other.file).read_text() == "precious"


def test_one_address_that_cannot_be_had_leaves_none_of_the_others_open(
    scene: Scene, loop: Loop, places: Places
) -> None:
    """What had begun to listen stops again."""
    good = places.new(IPC)
    worker = requite.Worker(echo, bind=[good.listening(), scene.place.listening()])
    with pytest.raises(requite.TransportError):
        loop.do(worker.start())
    loop.do(worker.close())
    assert not Path(good.file).exists()
    Scene(loop, good)


# --- many at once ---------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", [TCP, TLS, WS, IPC], ids=str)
@both_loops
def test_connections_that_come_and_go_leave_nothing(wire: Wire, loop: Loop, places: Places) -> None:
    scene = Scene(loop, places.new(wire))
    before = how_many()
    for number in range(30):
        client = requite.AsyncClient(scene.place.dialling())
        assert loop.ask(client, b"%d" % number) == b"%d" % number
        loop.do(client.close())
        with requite.Client(scene.place.dialling()) as blocking:
            assert blocking.call(b"%d" % number, timeout=WAIT_S).body == b"%d" % number
    eventually(lambda: how_many() <= before, "all connections are closed")
    scene.check()


def test_a_thousand_strangers_do_not_make_a_thousand_log_lines(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(500):
        with HandPeer.dial(scene.place) as peer:
            peer.write(header(16))
            peer.hung_up()
    lines = [record for record in caplog.records if "PAIR" in record.getMessage()]
    took_s = lines[-1].created - lines[0].created
    assert 1 <= len(lines) <= took_s + 20
    scene.check()


def test_a_dialler_that_is_refused_pauses_between_attempts(
    loop: Loop, places: Places, hands: Hands
) -> None:
    """Somebody who accepts and hangs up is not dialled as fast as the machine allows."""
    listener = hands.listen(places.new())
    client = loop.client(listener.place)
    call = loop.begin(client.call(b"x", timeout=2.0))
    accepted = 0
    while not call.done():
        if listener.has_caller(0.1):
            accepted += 1
    assert isinstance(call.exception(), requite.CallTimeout)
    assert 2 <= accepted <= 40


def test_a_rep_that_dials_a_rep_is_told_apart(scene: Scene, loop: Loop) -> None:
    """Two services connected to each other do nothing, and do it quietly."""
    loop.worker(scene.place)
    with HandPeer.dial(scene.place) as peer:
        peer.write(header(REP))
        assert peer.hung_up() == header(REP)
    scene.check()
