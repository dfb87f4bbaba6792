"""Service URLs: parsing, errors with suggestions, and hidden passwords."""

import re

import pytest

from requite.errors import ConfigurationError
from requite.speaks.registry import parse_url
from requite.speaks.url import ServiceUrl, redact
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress, TlsAddress


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
def test_addresses_and_services(text: str, addresses: list[object], service: str) -> None:
    url = parse_url(text)
    assert url == ServiceUrl("mdp", tuple(addresses), service)  # type: ignore[arg-type]


def test_credentials_and_options() -> None:
    url = parse_url("mdp+tls://us%3Aer:pass%40wo%2Frd@host/echo?dialect=0.2")
    assert (url.user, url.password) == ("us:er", "pass@wo/rd")
    assert url.options == {"dialect": "0.2"}
    assert url.addresses == (TlsAddress("host", 5555),)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://localhost", r"the scheme must be one of mdp://, mdp\+tls://, mdp\+ipc://"),
        ("", "the scheme must be one of"),
        ("hello world", "the scheme must be one of"),
        ("mdp:///echo", "host is missing"),
        ("mdp://a,/echo", "host is missing"),
        ("mdp://a:x/echo", "'x' is not a port"),
        ("mdp://*:1/echo", "for listening"),
        ("mdp://a:0/echo", "for listening"),
        ("mdp://a/echo#x", "write %23"),
        ("mdp://a/echo?colour=red", "unknown option 'colour'; the options are dialect, service"),
        ("mdp://a/echo?dialect", "exactly one value"),
        ("mdp://a/echo?dialect=0.2&dialect=0.3", "exactly one value"),
        ("mdp://a/echo?service=other", "two services, 'echo' and 'other'"),
        ("mdp://a/%FF", "not UTF-8"),
        ("mdp://user@a/echo", "form user:password"),
        ("mdp://:secret@a/echo", "form user:password"),
        ("mdp+ipc://relative", "absolute"),
        ("mdp+inproc:///echo", "name is missing"),
    ],
)
def test_an_invalid_url_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:5555/echo", "mdp://127.0.0.1:5555/echo"),
        ("localhost:5555", "mdp://localhost:5555"),
        ("localhost", "mdp://localhost"),
        ("host/echo", "mdp://host/echo"),
        ("a:5555,b:5555/echo", "mdp://a:5555,b:5555/echo"),
        ("[::1]:5555/echo?dialect=0.2", "mdp://[::1]:5555/echo?dialect=0.2"),
        ("//host/echo", "mdp://host/echo"),
        ("mdp:5555", "mdp://mdp:5555"),
        ("mdp//localhost:5555", "mdp://localhost:5555"),
        ("mdp:host/echo", "mdp://host/echo"),
        ("sp+tcp:/host:7000", "sp+tcp://host:7000"),
        ("me:secret@host:5555/echo", "mdp+tls://me:***@host:5555/echo"),
        ("rabbit:5672/?queue=echo", "amqp://rabbit:5672/?queue=echo"),
        ("rabbit:5671", "amqps://rabbit:5671"),
        (
            "/run/broker.sock",
            "mdp+ipc:///run/broker.sock (a broker)"
            " or sp+ipc:///run/broker.sock (a service without a broker)",
        ),
    ],
)
def test_a_missing_scheme_is_suggested(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(text)
    assert str(caught.value).endswith(f"it has no scheme; did you mean {meant}?")


@pytest.mark.parametrize(
    "text",
    ["5555", ":5555", "./x.sock", "../x.sock", "host:port", "host:99999", "mdp//", "///", "a b"],
)
def test_no_invalid_url_is_suggested(text: str) -> None:
    with pytest.raises(ConfigurationError, match="the scheme must be one of mdp://") as caught:
        parse_url(text)
    assert "did you mean" not in str(caught.value)


def test_only_valid_suggestions_remain() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean mdp://host:5555/echo\?$"):
        parse_url("tcp://host:5555/echo")  # not sp+tcp://, which has no service names


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("mpd://host/echo", "mdp://host/echo"),
        ("MDP://host/echo", "mdp://host/echo"),
        ("mdp+tcp://host/echo", "mdp://host/echo"),
        ("flp+tcp://host:1", "flp://host:1"),
        (
            "tcp://127.0.0.1:5555",
            "mdp://127.0.0.1:5555 (a broker)"
            " or sp+tcp://127.0.0.1:5555 (a service without a broker)",
        ),
        ("ws://host/path", "sp+ws://host/path"),
        (
            "tls://host:1",
            "mdp+tls://host:1 (a broker, over TLS)"
            " or sp+tls://host:1 (a service without a broker, over TLS)",
        ),
        ("sp://host:1", "sp+tcp://host:1"),
        ("amqp0://me:secret@host", "amqp://me:***@host"),
    ],
)
def test_a_misspelt_scheme_is_corrected_in_the_error(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(text)
    scheme = text.partition("://")[0]
    assert str(caught.value).endswith(f"unknown scheme '{scheme}://'; did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("127.0.0.1:7000", "sp+tcp://127.0.0.1:7000"),
        ("tcp://127.0.0.1:7000", "sp+tcp://127.0.0.1:7000"),
        ("/run/service.sock", "sp+ipc:///run/service.sock"),
        ("fpl://127.0.0.1:7000", "flp://127.0.0.1:7000"),
    ],
)
def test_a_listener_is_suggested_a_scheme_for_listening(text: str, meant: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean {re.escape(meant)}\\?$"):
        parse_url(text, listening=True)


@pytest.mark.parametrize(
    "text",
    [
        "user:secret@host:5555/echo",
        "mdp://user:secret@host:x/echo",
        "mdp://user:sec@secret@host/echo",
        "mdp://user:secret/secret@host/echo",
        "mdp://user:secret?secret@host/echo",
        "mdp://user:secret#secret@host/echo",
        "mdp://user:secret@",
        "xyz://user:secret@host",
        "mdp://:secret@host",
        "mdp://user@home:secret@host/echo",
        "mdp://us/er:secret@host/echo",
        "mdp://us?er:secret@host/echo",
    ],
)
def test_no_message_shows_a_password(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_url(text)
    assert "secret" not in str(caught.value)


def test_str_and_repr_hide_the_password() -> None:
    url = parse_url("mdp+tls://user:secret@host/echo")
    assert "secret" not in f"{url} {url!r}"
    assert str(url) == "echo at tls://host:5555"
    assert redact("mdp://user:secret@host/echo") == "mdp://user:***@host/echo"
    assert redact("mdp://host/echo") == "mdp://host/echo"
