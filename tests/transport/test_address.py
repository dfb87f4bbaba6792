"""Addresses: what is read, what is refused, and with which words."""

import pytest

from requite.errors import ConfigurationError
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress, parse_address


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
    ],
)
def test_read_and_written_alike(text: str, address: object) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1:5555", "no scheme"),
        ("udp://127.0.0.1:5555", "'udp' is unknown; there are tcp, ipc and inproc"),
        ("tcp://localhost", "port is missing"),
        ("tcp://localhost:", "port is missing"),
        ("tcp://:5555", r"host is missing; write \*"),
        ("tcp://localhost:65536", "not a port"),
        ("tcp://localhost:-1", "not a port"),
        ("tcp://localhost:٣", "not a port"),
        ("tcp://localhost:http", "not a port"),
        ("tcp://::1:5555", "in brackets"),
        ("tcp://[::1:5555", "bracket"),
        ("tcp://[::1]5555", "bracket"),
        ("tcp://[::1]", "port is missing"),
        ("tcp://localhost:1/echo", "nothing but host:port"),
        ("tcp://local host:1", "nothing but host:port"),
        ("ipc://relative", "absolute"),
        ("ipc:///folder/", "does not name a file"),
        ("ipc:///zero\0byte", "does not name a file"),
        ("ipc:///" + "x" * 103, "longer than the 103 bytes"),
        ("inproc://", "name is missing"),
    ],
)
def test_refused_with_the_offending_text(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)
