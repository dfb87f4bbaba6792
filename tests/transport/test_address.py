"""Addresses: parsing, formatting and errors."""

import pytest

from requite.errors import ConfigurationError
from requite.transport.address import (
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
    parse_address,
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("tcp://127.0.0.1:5555", TcpAddress("127.0.0.1", 5555)),
        ("tcp://localhost:0", TcpAddress("localhost", 0)),
        ("tcp://*:65535", TcpAddress("*", 65535)),
        ("tcp://[::1]:1", TcpAddress("::1", 1)),
        ("tcp://[fe80::1%eth0]:1", TcpAddress("fe80::1%eth0", 1)),
        ("ipc:///run/requite/a b.sock", IpcAddress("/run/requite/a b.sock")),
        ("inproc://name", InprocAddress("name")),
        ("tls://localhost:1", TlsAddress("localhost", 1)),
        ("tls://[::1]:1", TlsAddress("::1", 1)),
        ("ws://localhost:1/", WsAddress("localhost", 1, "/")),
        ("ws://[::1]:1/a/b", WsAddress("::1", 1, "/a/b")),
        ("wss://*:0/caf%C3%A9", WsAddress("*", 0, "/caf%C3%A9", secure=True)),
    ],
)
def test_an_address_is_parsed_and_formatted_back(text: str, address: object) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1:5555", "no scheme"),
        (
            "udp://127.0.0.1:5555",
            "'udp' cannot be used here; the schemes are tcp, tls, ws, wss, ipc and ",
        ),
        ("mdp://localhost:1", "did you mean tcp://localhost:1"),
        ("sp+tcp://localhost:1", "did you mean tcp://localhost:1"),
        ("tcp://localhost", "port is missing"),
        ("tcp://localhost:", "port is missing"),
        ("tcp://:5555", r"host is missing; write \*"),
        ("tcp://localhost:65536", "not a port"),
        ("tcp://localhost:-1", "not a port"),
        ("tcp://localhost:" + "9" * 5000, "not a port"),
        ("tcp://localhost:٣", "not a port"),
        ("tcp://localhost:http", "not a port"),
        ("tcp://::1:5555", "in brackets"),
        ("tcp://[::1:5555", "bracket"),
        ("tcp://[::1]5555", "bracket"),
        ("tcp://[::1]", "port is missing"),
        ("tcp://localhost:1/echo", "only host:port may follow"),
        ("tcp://local host:1", "only host:port may follow"),
        ("ipc://relative", "absolute"),
        ("ipc:///folder/", "does not name a file"),
        ("ipc:///zero\0byte", "does not name a file"),
        ("ipc:///\ud800", "does not name a file"),
        ("tcp://a\0b:1", "not a valid host"),
        ("tcp://[\x07]:1", "not a valid host"),
        ("ipc:///" + "x" * 103, "longer than 103 bytes"),
        ("inproc://", "name is missing"),
        ("tls://localhost", "port is missing"),
        ("tls://localhost:1/path", "only host:port may follow"),
        ("ws:///path", "host is missing"),
        ("ws://localhost:x/path", "'x' is not a port"),
        ("ws://localhost/a b", "not a valid HTTP path; percent-encode"),
        ("ws://localhost/a?b", "not a valid HTTP path"),
        ("ws://localhost/a%2", "not a valid HTTP path"),
        ("ws://localhost/a\r\nHost: b", "not a valid HTTP path"),
        ("wss://localhost/é", "not a valid HTTP path"),
    ],
)
def test_an_invalid_address_is_refused_with_its_text(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


def test_websockets_default_to_the_ports_of_http() -> None:
    assert parse_address("ws://localhost") == WsAddress("localhost", 80, "/")
    assert parse_address("wss://localhost/x") == WsAddress("localhost", 443, "/x", secure=True)


def test_an_unsupported_scheme_lists_the_supported_ones() -> None:
    with pytest.raises(
        ConfigurationError, match="'ws' cannot be used here; the schemes are tcp and ipc"
    ):
        parse_address("ws://localhost", ("tcp", "ipc"))
    with pytest.raises(ConfigurationError, match="write tcp://host:port or ipc:///path"):
        parse_address("localhost", ("tcp", "ipc"))
