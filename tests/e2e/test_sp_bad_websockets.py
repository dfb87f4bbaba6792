"""Bad input on real sockets over WebSocket: invalid HTTP requests and invalid frames."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection

import pytest
from tests.e2e.sp_scene import LIMIT, MESSAGE, Scene, both_loops, loop, no_leaks, scene, warm, web
from tests.support import sp_web
from tests.support.sp_hand import Hands, hands
from tests.support.sp_live import WAIT_S, Loop
from tests.support.sp_web import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, read_frame
from tests.support.sp_wires import (
    WS,
    Places,
    certificates,
    places,
)

import requite

__all__ = ["certificates", "hands", "loop", "no_leaks", "places", "scene", "warm", "web"]

pytestmark = pytest.mark.e2e


@both_loops
def test_a_fragmented_request_with_a_ping_between_fragments(web: Scene, hands: Hands) -> None:
    peer = sp_web.open_client(hands.dial(web.place))
    peer.write(sp_web.frame(MESSAGE[:5], BINARY, final=False))
    peer.write(sp_web.frame(b"still there?", PING))
    peer.write(sp_web.frame(MESSAGE[5:], CONTINUATION))
    assert read_frame(peer) == (PONG, b"still there?", True)
    assert read_frame(peer) == (BINARY, MESSAGE, True)
    peer.write(sp_web.frame((1000).to_bytes(2, "big"), CLOSE))
    assert read_frame(peer).opcode == CLOSE
    assert peer.hung_up() == b""
    web.assert_unharmed()


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
def test_an_invalid_frame_closes_the_websocket(
    bad: bytes, code: int, web: Scene, hands: Hands
) -> None:
    peer = sp_web.open_client(hands.dial(web.place))
    peer.write(bad)
    closing = read_frame(peer)
    assert (closing.opcode, int.from_bytes(closing.payload[:2], "big")) == (CLOSE, code)
    peer.write(sp_web.frame(closing.payload, CLOSE))
    assert peer.hung_up() == b""
    web.assert_unharmed()


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
        (sp_web.asking(Origin="https://evil.example"), 403),
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
        "a page of another site",
        "GET",
        "POST",
    ],
)
def test_other_requests_are_refused_in_http(
    request_: bytes, status: int, web: Scene, hands: Hands
) -> None:
    peer = hands.dial(web.place)
    peer.write(request_)
    assert sp_web.read_head(peer).startswith(b"HTTP/1.1 %d " % status)
    peer.hung_up()
    web.assert_unharmed()


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize(("path", "status"), [("/rpc", 426), ("/elsewhere", 404)])
def test_an_http_client_can_read_the_refusal(
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
    web.assert_unharmed()


def test_an_endless_http_head_is_refused(web: Scene, hands: Hands) -> None:
    peer = hands.dial(web.place)
    peer.write(b"GET /rpc HTTP/1.1\r\n")
    for _ in range(2000):
        peer.write(b"X-Padding: " + b"x" * 1000 + b"\r\n")
    peer.hung_up()
    web.assert_unharmed()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "200"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP"),
        ("", "rep.sp.nanomsg.org"),
        ("req.sp.nanomsg.org", "req.sp.nanomsg.org"),
    ],
)
def test_a_peer_that_is_not_a_websocket_of_a_rep_is_reported_to_the_caller(
    answer: bytes | str, expected: str, loop: Loop, places: Places, hands: Hands
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
    assert expected.lower() in str(failed.value).lower()
