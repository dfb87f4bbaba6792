"""Bad input for the server of metrics: it neither fails nor slows requests down."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.cli.command import WAIT_S, Running, requite, running, running_worker
from tests.metrics.scrape import get, scrape, url_of

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[Running, str, str]]:
    """A broker with a worker: the process, and the URLs of its metrics and its own."""
    with running("broker", "--bind", "tcp://127.0.0.1:0", "--http", ":0") as process:
        url = url_of(process)
        own = process.line().replace("listening on tcp", "mdp")
        with running_worker("requite.examples:echo", "--connect", own):
            yield process, url, own


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def still_works(url: str, own: str) -> None:
    assert requite("call", f"{own}/echo", "hello").stdout == b"hello"
    assert scrape(url).value("requite_ready") == 1


@pytest.mark.parametrize(
    "text",
    [
        b"\x00\x01\x02\x03",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /metrics/detailed?service=" + b"%ff" * 500 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_malformed_requests(broker: tuple[Running, str, str], text: bytes) -> None:
    _, url, own = broker
    with socket.create_connection(("127.0.0.1", port_of(url)), WAIT_S) as sock:
        try:
            sock.sendall(text)
            sock.shutdown(socket.SHUT_WR)
            answer = sock.recv(1 << 16)
        except OSError:  # it may be closed before all was sent
            answer = b""
    assert b" 200 " not in answer.split(b"\r\n")[0]
    still_works(url, own)


@pytest.mark.parametrize(
    "path", ["/metric", "/metrics/", "/ready/x", "/../etc/passwd", "//metrics"]
)
def test_paths_that_do_not_exist(broker: tuple[Running, str, str], path: str) -> None:
    answer = get(broker[1], path)
    assert answer.status == 404
    assert "there are /metrics, /health and /ready" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_other_methods(broker: tuple[Running, str, str], method: str) -> None:
    assert get(broker[1], "/metrics", method=method).status == 405


@pytest.mark.parametrize("path", ["/metrics", "/health", "/ready"])
def test_foreign_hosts_and_origins(broker: tuple[Running, str, str], path: str) -> None:
    url = broker[1]
    assert get(url, path, {"Host": "evil.example"}).status == 403
    assert get(url, path, {"Origin": "http://evil.example"}).status == 403
    assert get(url, path, {"Origin": "null"}).status == 403
    assert get(url, path, {"Host": f"localhost:{port_of(url)}"}).status == 200


def test_another_host_can_be_allowed() -> None:
    options = ("--bind", "tcp://127.0.0.1:0", "--http", ":0", "--http-host", "metrics.example")
    with running("broker", *options) as process:
        url = url_of(process)
        assert get(url, "/health", {"Host": "metrics.example:80"}).status == 200
        assert get(url, "/health", {"Host": "other.example"}).status == 403


def test_a_thousand_connections_and_scrapers_that_do_not_read(
    broker: tuple[Running, str, str],
) -> None:
    _, url, own = broker
    with ExitStack() as stack:
        for number in range(1000):
            sock = stack.enter_context(socket.socket())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.settimeout(WAIT_S)
            sock.connect(("127.0.0.1", port_of(url)))
            if number % 2:
                sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
        still_works(url, own)
    still_works(url, own)


def test_a_connection_may_be_used_again(broker: tuple[Running, str, str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(broker[1]), timeout=WAIT_S)
    for _ in range(3):
        connection.request("GET", "/ready")
        assert connection.getresponse().read() == b'{"ready":true,"flaw":""}'
    connection.close()
