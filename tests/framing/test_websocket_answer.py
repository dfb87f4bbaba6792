"""The answers to the opening handshake of SP on WebSocket, byte by byte, that a client refuses.

RFC 6455, section 4; sp-websocket-mapping-01.
"""

import pytest
from tests.support.raw_websocket import (
    ANSWER,
    REP,
    REQ,
    REQUEST,
    accept_of,
    feed,
    make_client,
    make_server,
)

from requite.errors import RemoteViolation
from requite.framing import SpWebSocket


def refused(framing: SpWebSocket, data: bytes, step: int = 0) -> str:
    with pytest.raises(RemoteViolation) as caught:
        feed(framing, data, step)
    for ask in (framing.at_end, lambda: framing.receive(b""), lambda: framing.receive(REQUEST)):
        with pytest.raises(RemoteViolation) as again:
            ask()
        assert str(again.value) == str(caught.value)
    assert not framing.ready
    assert framing.output() == framing.closing() == b""
    return str(caught.value)


def answer_to(client: SpWebSocket, old: bytes, new: bytes) -> bytes:
    answer = ANSWER.replace(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", accept_of(client.opening()))
    assert answer.count(old) == 1
    return answer.replace(old, new)


@pytest.mark.parametrize("step", [0, 1])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b"Sec-WebSocket-Protocol", b"X-Protocol", "did not confirm the subprotocol rep.sp"),
        (b"rep.sp", b"req.sp", "unrecognized subprotocol req.sp.nanomsg.org"),
        (b"rep.sp", b"r\xe9p.sp", "does not open a WebSocket"),
        (b"Accept: ", b"Accept: x", "Bad accept token"),
        (b"Upgrade: websocket", b"Upgrade: h2c", "Upgrade: websocket"),
        (b"Connection: Upgrade", b"Connection: close", "Connection: Upgrade"),
        (b"Sec-WebSocket-P", b"Sec-WebSocket-Extensions: x\r\nSec-WebSocket-P", "extension x"),
        (b"HTTP/1.1", b"HTTP/2.0", "expected an HTTP/1 response, but received an HTTP response"),
        (b"HTTP/1.1", b"\0SP\0\0\x31\0\0", "expected an HTTP/1 response, but received "),
        (b" 101 ", b" abc ", "Bad HTTP message"),
        (b" 101 Switching Protocols", b" 103 Early Hints", "HTTP 103 Early Hints"),
        (b"\r\n\r\n", b"\r\nx: " + b"x" * 16_384, "more than 16384 bytes"),
    ],
)
def test_an_invalid_answer_is_refused(old, new, reason, step):
    client = make_client()
    assert reason in refused(client, answer_to(client, old, new), step)


@pytest.mark.parametrize("step", [0, 1, 7, 60])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\n"
            b"not\nat\thome\n",
            "HTTP 400 Bad Request: not at home",
        ),
        (
            b"HTTP/1.1 404 Nope\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
            "HTTP 404 Not Found",
        ),
        (
            b"HTTP/1.1 503 x\r\nContent-Type: Text/Plain; charset=utf-8\r\n"
            b"Content-Length: 0\r\n\r\n",
            "HTTP 503 Service Unavailable",
        ),
        (
            b"HTTP/1.1 599 x\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"4\r\nbusy\r\n4\r\n now\r\n0\r\n\r\n",
            "HTTP 599: busy now",
        ),
        (b"HTTP/1.1 204 No Content\r\nContent-Type: text/plain\r\n\r\n", "HTTP 204 No Content"),
        (b"HTTP/1.0 301 Moved\r\nLocation: /\r\n\r\n", "HTTP 301 Moved Permanently"),
    ],
)
def test_the_servers_refusal_is_quoted(answer, told, step):
    assert refused(make_client(), answer, step) == f"the server refused the WebSocket: {told}"


def test_a_refusal_cut_off_by_end_of_stream_is_quoted():
    client = make_client()
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n"
    assert client.receive(head) == []
    assert client.receive(b"not ") == []
    assert client.receive(b"you") == []
    with pytest.raises(RemoteViolation, match=r"HTTP 403 Forbidden: not you$"):
        client.at_end()


@pytest.mark.parametrize("step", [0, 1, 499, 501])
def test_a_long_refusal_is_truncated(step):
    head = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n"
    told = refused(make_client(), head + b"x" * 10_000, step)
    assert told == "the server refused the WebSocket: HTTP 403 Forbidden: " + "x" * 500


@pytest.mark.parametrize(
    ("server", "told"),
    [
        (lambda: make_server(path="/other"), "HTTP 404 Not Found: no SP endpoint at /svc"),
        (
            lambda: SpWebSocket(REQ, REP, is_client=False),
            "HTTP 400 Bad Request: the request names the subprotocol rep.sp.nanomsg.org; "
            "this endpoint requires req.sp.nanomsg.org",
        ),
    ],
)
def test_our_client_quotes_the_reason_of_our_server(server, told):
    client, refusing = make_client(path="/svc"), server()
    with pytest.raises(RemoteViolation):
        refusing.receive(client.opening())
    assert refused(client, refusing.output()).endswith(told)
