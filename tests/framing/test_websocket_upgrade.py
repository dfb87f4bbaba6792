"""The opening handshake of SP on WebSocket, byte by byte, with every refusal by the server.

RFC 6455, section 4; sp-websocket-mapping-01.
"""

import re
from http import HTTPStatus

import pytest
from tests.support.raw_websocket import (
    ANSWER,
    HOST,
    REP,
    REQ,
    REQUEST,
    accept_of,
    feed,
    make_client,
    make_server,
    upgrade,
)

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import SpWebSocket

BINARY_HELLO = b"\x82\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58"


def refusal_by_server(data: bytes, path: str = "/svc", step: int = 0) -> tuple[str, str, str]:
    """Return a server's error for a request, and the status line and body of its answer."""
    server = make_server(path=path)
    with pytest.raises(RemoteViolation) as caught:
        feed(server, data, step)
    head, _, body = server.output().partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    if not data.startswith(b"HEAD"):
        assert f"content-length: {len(body)}".encode() in head.lower()
    with pytest.raises(RemoteViolation, match=re.escape(str(caught.value))):
        server.receive(REQUEST)
    assert server.closing() == b""
    assert not server.ready
    return str(caught.value), head.decode().split("\r\n")[0], body.decode()


def head_and_body(request: bytes, step: int = 0) -> tuple[str, dict[str, str], str]:
    """Return the error of a server at /svc for a request, and its answer: status line and fields,
    and body."""
    told, *_ = refusal_by_server(request, step=step)
    server = make_server(path="/svc")
    with pytest.raises(RemoteViolation):
        server.receive(request)
    head, _, body = server.output().decode().partition("\r\n\r\n")
    status, *fields = head.split("\r\n")
    named = dict(field.split(": ", 1) for field in fields)
    return told, {"status": status} | {name.lower(): value for name, value in named.items()}, body


# --- accepted requests ----------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 50, 1000])
def test_the_rfcs_example_request_gets_its_example_answer(step):
    server = make_server(path="/svc")
    for at in range(0, len(REQUEST), step):
        assert not server.ready
        assert server.receive(REQUEST[at : at + step]) == []
    assert server.ready
    assert server.output() == ANSWER
    assert server.output() == b""
    server.at_end()


def with_fields(*fields: str, host: str = "server.example.com") -> bytes:
    """Return the request with another host and more fields."""
    head = REQUEST.replace(b"server.example.com", host.encode())
    return head[:-2] + "".join(f"{field}\r\n" for field in fields).encode() + b"\r\n"


# --- web pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("https://evil.example", "127.0.0.1:5555"),
        ("http://127.0.0.1.evil.example", "127.0.0.1:5555"),
        ("http://127.0.0.2", "127.0.0.1:5555"),
        ("http://evil.example:5555", "evil.example:5555"),  # the name leads here: DNS rebinding
        ("null", "127.0.0.1:5555"),
        ("", "127.0.0.1:5555"),
        ("127.0.0.1", "127.0.0.1:5555"),
        ("file://", "127.0.0.1"),
        ("ftp://127.0.0.1", "127.0.0.1"),
        ("http://listed.example", "127.0.0.1"),
        ("https://listed.example:8443", "127.0.0.1"),
        ("https://listed.example/", "127.0.0.1"),
    ],
)
def test_a_page_of_another_site_is_refused(origin: str, host: str) -> None:
    server = make_server(origins=("https://listed.example",))
    with pytest.raises(RemoteViolation, match="403"):
        server.receive(with_fields(f"Origin: {origin}", host=host))
    head, _, body = server.output().decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 Forbidden\r\n")
    assert "origins=" in body
    assert not server.ready


def test_each_origin_of_a_request_must_be_allowed() -> None:
    server = make_server()
    fields = ("Origin: http://127.0.0.1", "Origin: http://evil.example")
    with pytest.raises(RemoteViolation, match=r"403: .*evil\.example"):
        server.receive(with_fields(*fields, host="127.0.0.1"))


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:3000", "127.0.0.1:5555"),
        ("https://localhost", "LOCALHOST:5555"),
        ("http://[::1]:8080", "[0::1]:5555"),
        ("http://192.0.2.7", "192.0.2.7"),
        ("http://shop.example", "shop.example:5555"),
        ("https://listed.example", "127.0.0.1"),
        ("HTTPS://Listed.Example:443", "server.example.com"),
        ("http://other.example:8080", "server.example.com"),
        ("app://shell", "server.example.com"),
    ],
)
def test_pages_of_the_listeners_own_host_and_of_listed_origins_are_accepted(
    origin: str, host: str
) -> None:
    listed = ("https://listed.example", "http://other.example:8080", "app://shell")
    server = make_server(host="shop.example", origins=listed)
    assert server.receive(with_fields(f"Origin: {origin}", host=host)) == []
    assert server.ready


def test_the_request_of_a_client():
    lines = make_client(path="/a/b").opening().split(b"\r\n")
    assert lines[0] == b"GET /a/b HTTP/1.1"
    assert lines[-2:] == [b"", b""]
    assert f"Host: {HOST}".encode() in lines
    assert b"Upgrade: websocket" in lines
    assert b"Sec-WebSocket-Protocol: rep.sp.nanomsg.org" in lines
    assert not any(line.startswith(b"Sec-WebSocket-Extensions") for line in lines)


def test_the_default_path_is_the_root_and_each_request_has_its_own_key():
    one, two = make_client(), make_client()
    assert one.opening().startswith(b"GET / HTTP/1.1\r\n")
    assert one.opening() == one.opening()
    assert one.opening() != two.opening()


@pytest.mark.parametrize("host", ["[::1]:80", "my_service:8080", "bücher.example:1", "a.b.c"])
def test_all_forms_of_host_are_accepted(host):
    upgrade(SpWebSocket(REQ, REP, is_client=True, host=host), make_server())


@pytest.mark.parametrize(
    ("own", "peer", "name"),
    [(48, 49, b"rep"), (49, 48, b"req"), (16, 17, b"rep"), (17, 16, b"req")],
)
def test_the_subprotocol_is_the_role_of_the_server(own, peer, name):
    client = SpWebSocket(own, peer, is_client=True, host=HOST)
    assert b"Sec-WebSocket-Protocol: " + name + b".sp.nanomsg.org\r\n" in client.opening()
    upgrade(client, SpWebSocket(peer, own, is_client=False))


@pytest.mark.parametrize("path", ["", "/", "/svc", "/a/%C3%A9/b"])
def test_a_server_without_a_path_accepts_any_and_one_with_a_path_only_its_own(path):
    upgrade(make_client(path=path), make_server())
    upgrade(make_client(path=path), make_server(path=path))


@pytest.mark.parametrize("place", ["http://server.example.com", "HTTPS://a:7000", "ws://[::1]:80"])
def test_a_target_in_absolute_form_is_accepted(place):
    """RFC 9112, section 3.2.2: servers must accept it, although clients send it to proxies only."""
    for path in ("/svc", "/svc?a=http://b/c"):
        server = make_server(path="/svc")
        server.receive(REQUEST.replace(b"/svc", f"{place}{path}".encode()))
        assert server.output() == ANSWER
    server = make_server(path="/")
    server.receive(REQUEST.replace(b"/svc", place.encode()))
    assert server.output() == ANSWER


def test_a_query_is_no_part_of_the_path():
    upgrade(make_client(path="/svc?token=1"), make_server(path="/svc"))


def test_the_matching_subprotocol_is_chosen_among_several():
    server = make_server()
    server.receive(REQUEST.replace(b"rep.sp", b"chat, pair.sp.nanomsg.org, rep.sp"))
    assert server.output() == ANSWER


def test_an_extension_is_not_accepted():
    server = make_server()
    extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    server.receive(REQUEST[:-2] + extra)
    assert server.output() == ANSWER


def test_frames_may_arrive_with_the_end_of_the_upgrade():
    server = make_server()
    assert server.receive(REQUEST + BINARY_HELLO) == [[b"Hello"]]
    client = make_client()
    answer = ANSWER.replace(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", accept_of(client.opening()))
    assert client.receive(answer + b"\x82\x05Hello") == [[b"Hello"]]
    assert client.ready


def test_nothing_is_encoded_before_the_upgrade():
    for framing in (make_client(), make_server()):
        out = [b"before"]
        with pytest.raises(LocalViolation, match="before the WebSocket is open"):
            framing.encode([b"x"], out)
        assert out == [b"before"]
        assert not framing.mid_message
        assert framing.farewell == ""
        assert framing.closing() == b""


@pytest.mark.parametrize(
    ("host", "path"),
    [
        ("", "/"),
        ("a\r\nb", "/"),
        ("a" * 64, "/"),
        ("a..b", "/"),
        ("a", "x"),
        ("a", "/ "),
        ("a", "/é"),
    ],
)
def test_a_client_refuses_an_invalid_host_or_path(host, path):
    with pytest.raises(LocalViolation, match="cannot request a WebSocket"):
        SpWebSocket(REQ, REP, is_client=True, host=host, path=path)


# --- refused by the server ------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("old", "new", "status", "reason"),
    [
        (
            b"rep.sp",
            b"req.sp",
            400,
            "the request names the subprotocol req.sp.nanomsg.org; this endpoint",
        ),
        (
            b"rep.sp.nanomsg.org",
            b"a, b",
            400,
            "names the subprotocol a, b; this endpoint requires rep.sp",
        ),
        (
            b"-Protocol",
            b"-Nothing",
            400,
            "names the subprotocol none; this endpoint requires rep.sp",
        ),
        (b"/svc", b"/other", 404, "no SP endpoint at /other"),
        (b"/svc", b"/", 404, "no SP endpoint at /"),
        (b"Version: 13", b"Version: 8", 426, "speaks WebSocket version 13 (RFC 6455) only"),
        (b"Sec-WebSocket-Version: 13\r\n", b"", 400, "Missing header, 'Sec-WebSocket-Version'"),
        (b"Version: 13", b"Version-", 400, "malformed"),
        (b"Upgrade: websocket\r\n", b"", 426, "request an upgrade"),
        (b"Upgrade: websocket", b"Upgrade: h2c", 426, "request an upgrade"),
        (b"Connection: Upgrade", b"Connection: close", 400, "Connection: Upgrade"),
        (b"-Key", b"-Lock", 400, "Sec-WebSocket-Key"),
        (b"Host", b"Guest", 400, "HTTP"),
        (b" HTTP/1.1", b" HTTP/1.0", 426, "HTTP/1.1"),
        (b" HTTP/1.1", b" HTTP/2.0", 400, "malformed"),
        (b" HTTP/1.1", b"", 400, "malformed"),
        (b"GET ", b"POST ", 405, "opened with GET, not POST"),
        (b"server.example.com", b"\xff\xfe", 400, "malformed"),
        (b"Upgrade\r\n", b"Upgr\xe4de\r\n", 400, "malformed"),
        (b"rep.sp", b"r\xe9p.sp", 400, "malformed"),
        (b"Host: ", b"no colon\r\nHost: ", 400, "malformed"),
    ],
)
def test_a_request_is_refused_with_a_status_and_a_reason(old, new, status, reason, step):
    assert REQUEST.count(old) == 1
    told, line, body = refusal_by_server(REQUEST.replace(old, new), step=step)
    assert line.startswith(f"HTTP/1.1 {status}")
    assert reason in body
    assert told == f"refused an HTTP request with {status}: {body.rstrip()}"


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/svc", 426),
        ("/svc?a=b", 426),
        ("/", 404),
        ("/other", 404),
        ("/svc/", 404),
        ("*", 404),
        ("http://a/svc", 426),
        ("http://a", 404),
    ],
)
def test_plain_http_gets_426_at_the_path_and_404_elsewhere(method, target, status, step):
    request = f"{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode()
    _, answer, body = head_and_body(request, step)
    assert answer["status"] == f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    assert answer["content-length"] == str(len(body))
    assert answer["content-type"].startswith("text/plain")
    if status == 426:
        assert answer["upgrade"] == "websocket"
        assert answer["connection"] == "close, Upgrade"
        assert answer["sec-websocket-version"] == "13"
        assert "rep.sp.nanomsg.org" in body
    else:
        assert answer["connection"] == "close"
        assert "upgrade" not in answer


@pytest.mark.parametrize(("path", "status"), [("/svc", 426), ("/other", 404)])
def test_head_is_answered_like_get_without_the_body(path, status):
    _, as_get, body = head_and_body(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    _, as_head, nothing = head_and_body(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert as_head == as_get
    assert as_get["status"].startswith(f"HTTP/1.1 {status}")
    assert (bool(body), nothing) == (True, "")


def test_another_method_gets_405_and_the_allowed_one():
    _, answer, _ = head_and_body(REQUEST.replace(b"GET ", b"PUT "))
    assert answer["status"] == "HTTP/1.1 405 Method Not Allowed"
    assert answer["allow"] == "GET"


def test_an_upgrade_of_another_version_gets_the_supported_one():
    _, answer, _ = head_and_body(REQUEST.replace(b"Version: 13", b"Version: 8"))
    assert answer["sec-websocket-version"] == "13"
    assert answer["upgrade"] == "websocket"


def test_an_invalid_upgrade_at_another_path_gets_404():
    request = REQUEST.replace(b"/svc", b"/other").replace(b"Version: 13", b"Version: 8")
    _, answer, _ = head_and_body(request)
    assert answer["status"] == "HTTP/1.1 404 Not Found"


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /svc\r\n\r\n",
        b"GET  /svc HTTP/1.1\r\n\r\n",
        b"GET /s vc HTTP/1.1\r\n\r\n",
        b"GET /svc HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /svc HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
        b"GET /svc HTTP/1.1\r\n: no name\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xe9 HTTP/1.1\r\n\r\n",
    ],
)
def test_malformed_http_gets_400(request_):
    told, answer, body = head_and_body(request_)
    assert answer["status"] == "HTTP/1.1 400 Bad Request"
    assert body == "malformed HTTP request\n"
    assert told.endswith("400: malformed HTTP request")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0SP\0\0\x30\0\0", "SP of nng or nanomsg (use sp+tcp://"),
        (b"\xff\0\0\0\0\0\0\0\x01\x7f", "ZMTP of ZeroMQ"),
        (b"\x16\x03\x01", "TLS (use mdp+tls://"),
        (b"SSH-2.0-x\r\n", "SSH"),
        (b"get / HTTP/1.1", '"get / HTTP/1.1"'),
        (b"\x7f", "the bytes 7f"),
        (b"\r\nGET /svc", "the bytes 0d 0a 47 45 54 20 2f"),
        (b"\xffx", "the bytes ff 78"),
    ],
)
def test_another_protocol_is_refused_at_its_first_bytes(data, name):
    told, line, body = refusal_by_server(data)
    assert line.startswith("HTTP/1.1 400")
    assert told == f"refused an HTTP request with 400: {body.rstrip()}"
    assert body.startswith(f"expected an HTTP request, but received {name}")
    assert body.count("\n") == 1


@pytest.mark.parametrize("step", [0, 1, 1000])
@pytest.mark.parametrize("ending", [b"", b"\r\n\r\n", b"x" * 70_000])
def test_a_header_without_end_is_refused(step, ending):
    data = REQUEST[:-2] + b"Cookie: " + b"x" * 16_384 + ending
    told, line, _ = refusal_by_server(data, step=step)
    assert line.startswith("HTTP/1.1 400")
    assert "more than 16384 bytes" in told


def test_a_header_of_exactly_the_limit_is_accepted():
    server = make_server()
    filler = b"Cookie: " + b"x" * (16_384 - len(REQUEST) - 10) + b"\r\n"
    request = REQUEST[:-2] + filler + b"\r\n"
    assert len(request) == 16_384
    server.receive(request)
    assert server.ready


def test_errors_quote_the_peers_request_in_one_short_line():
    told, _, body = refusal_by_server(REQUEST.replace(b"rep.sp", b"x" * 5000), path="")
    assert len(told) < 300
    assert body.count("\n") == 1


# --- end of stream --------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [0, 1, 20, len(REQUEST) - 1])
def test_end_of_stream_inside_the_upgrade_is_refused(cut):
    server = make_server()
    server.receive(REQUEST[:cut])
    with pytest.raises(RemoteViolation, match="before its HTTP request was complete"):
        server.at_end()
    client = make_client()
    client.receive(ANSWER[: min(cut, 100)])
    with pytest.raises(RemoteViolation, match="before its HTTP response was complete"):
        client.at_end()
