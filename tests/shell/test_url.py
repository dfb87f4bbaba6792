"""URLs of services: what they stand for, what is refused, and that passwords stay hidden."""

import pytest

from requite.errors import ConfigurationError
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress
from requite.url import ServiceUrl, parse_url, redact


@pytest.mark.parametrize(
    ("text", "addresses", "service"),
    [
        ("mdp://localhost:5555/echo", [TcpAddress("localhost", 5555)], "echo"),
        ("mdp://localhost/echo", [TcpAddress("localhost", 5555)], "echo"),
        ("mdp://localhost", [TcpAddress("localhost", 5555)], ""),
        ("mdp://localhost:1/", [TcpAddress("localhost", 1)], ""),
        ("mdp://[::1]:7/echo", [TcpAddress("::1", 7)], "echo"),
        ("mdp://[::1]/echo", [TcpAddress("::1", 5555)], "echo"),
        (
            "mdp://a:1,b:2,c/echo",
            [TcpAddress("a", 1), TcpAddress("b", 2), TcpAddress("c", 5555)],
            "echo",
        ),
        ("mdp://a/math.add/v2", [TcpAddress("a", 5555)], "math.add/v2"),
        ("mdp://a/caf%C3%A9%20%3F", [TcpAddress("a", 5555)], "café ?"),
        ("mdp://a?service=echo", [TcpAddress("a", 5555)], "echo"),
        ("mdp+ipc:///run/broker.sock?service=echo", [IpcAddress("/run/broker.sock")], "echo"),
        ("mdp+ipc:///run/a%20b.sock", [IpcAddress("/run/a b.sock")], ""),
        ("mdp+inproc://here/echo", [InprocAddress("here")], "echo"),
    ],
)
def test_places_and_services(text: str, addresses: list[object], service: str) -> None:
    url = parse_url(text)
    assert url == ServiceUrl("mdp", tuple(addresses), service)  # type: ignore[arg-type]


def test_credentials_and_options() -> None:
    url = parse_url("mdp://us%3Aer:pass%40wo%2Frd@host/echo?dialect=0.2")
    assert (url.user, url.password) == ("us:er", "pass@wo/rd")
    assert url.options == {"dialect": "0.2"}
    assert url.addresses == (TcpAddress("host", 5555),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("localhost:5555", r"the scheme is none of mdp://, mdp\+ipc://, mdp\+inproc://"),
        ("http://localhost", "the scheme is none of"),
        ("mdp:localhost", "the scheme is none of"),
        ("mdp:///echo", "host is missing"),
        ("mdp://a,/echo", "host is missing"),
        ("mdp://a:x/echo", "'x' is not a port"),
        ("mdp://*:1/echo", "for listening"),
        ("mdp://a:0/echo", "for listening"),
        ("mdp://a/echo#x", "write %23"),
        ("mdp://a/echo?colour=red", "no option 'colour'; there are dialect, service"),
        ("mdp://a/echo?dialect", "takes one value"),
        ("mdp://a/echo?dialect=0.2&dialect=0.3", "takes one value"),
        ("mdp://a/echo?service=other", "two services, 'echo' and 'other'"),
        ("mdp://a/%FF", "not UTF-8"),
        ("mdp://user@a/echo", "user:password, both"),
        ("mdp://:secret@a/echo", "user:password, both"),
        ("mdp+ipc://relative", "absolute"),
        ("mdp+inproc:///echo", "name is missing"),
    ],
)
def test_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text)


@pytest.mark.parametrize(
    "text",
    [
        "mdp://user:secret@host:x/echo",
        "mdp://user:sec@secret@host/echo",
        "mdp://user:secret/secret@host/echo",
        "mdp://user:secret?secret@host/echo",
        "mdp://user:secret#secret@host/echo",
        "mdp://user:secret@",
        "xyz://user:secret@host",
        "mdp://:secret@host",
    ],
)
def test_no_message_shows_a_password(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(text)
    assert "secret" not in str(caught.value)


def test_neither_str_nor_repr_shows_a_password() -> None:
    url = parse_url("mdp://user:secret@host/echo")
    assert "secret" not in f"{url} {url!r}"
    assert str(url) == "echo at tcp://host:5555"
    assert redact("mdp://user:secret@host/echo") == "mdp://user:***@host/echo"
    assert redact("mdp://host/echo") == "mdp://host/echo"
