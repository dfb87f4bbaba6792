"""Scalability-protocol URLs: addresses, options and errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from requite.errors import ConfigurationError
from requite.framing import Limits
from requite.protocols.scalability.wire import DRAFT_REQ, REQ
from requite.shell.connections import Endpoint
from requite.speaks.registry import SCHEMES, parse_url, spoken
from requite.speaks.sp import SpRole, origins_of, resend_of, to_dial
from requite.speaks.url import ServiceUrl
from requite.transport.address import (
    Address,
    InprocAddress,
    IpcAddress,
    TcpAddress,
    TlsAddress,
    WsAddress,
)
from requite.transport.tls import TlsSettings


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("sp+tcp://localhost:7000", [TcpAddress("localhost", 7000)]),
        ("sp+tcp://localhost:7000/", [TcpAddress("localhost", 7000)]),
        ("sp+tcp://a:1,[::1]:2", [TcpAddress("a", 1), TcpAddress("::1", 2)]),
        ("sp+ipc:///run/a%20b.sock", [IpcAddress("/run/a b.sock")]),
        ("sp+ws://localhost", [WsAddress("localhost", 80, "/")]),
        ("sp+ws://a/x,b/y", [WsAddress("a", 80, "/x,b/y")]),
        ("sp+ws://a:1,b:2/x", [WsAddress("a", 1, "/x"), WsAddress("b", 2, "/x")]),
        ("sp+ws://[::1]:1/caf%C3%A9", [WsAddress("::1", 1, "/caf%C3%A9")]),
        ("inproc://here", [InprocAddress("here")]),
        ("sp+inproc://here", [InprocAddress("here")]),
    ],
)
def test_addresses_without_tls(text: str, addresses: list[Address]) -> None:
    assert parse_url(text) == ServiceUrl("sp", tuple(addresses))


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("sp+tls://a:1,b:2", [TlsAddress("a", 1), TlsAddress("b", 2)]),
        ("sp+wss://[::1]/x", [WsAddress("::1", 443, "/x", secure=True)]),
    ],
)
def test_addresses_with_tls(text: str, addresses: list[Address]) -> None:
    assert parse_url(text) == ServiceUrl("sp", tuple(addresses), tls=TlsSettings())


@pytest.mark.parametrize(
    ("text", "origins"),
    [
        ("sp+ws://127.0.0.1:0?origins=https://Shop.Example", ("https://shop.example",)),
        (
            "sp+ws://*:0/x?origins=http://a:80,http://[0::1]:8080,app://b&ids=draft",
            ("http://a", "http://[::1]:8080", "app://b"),
        ),
        ("sp+ws://*:0", ()),
    ],
)
def test_a_listener_has_the_origins_of_its_pages(text: str, origins: tuple[str, ...]) -> None:
    assert origins_of(parse_url(text, listening=True)) == origins


@pytest.mark.parametrize(
    ("text", "listening", "complaint"),
    [
        ("sp+ws://a:1?origins=http://b", False, "'origins' is for listening"),
        ("sp+ws://*:1?origins=b", True, "'b' is not an origin"),
        ("sp+ws://*:1?origins=http://b/c", True, "'http://b/c' is not an origin"),
        ("sp+ws://*:1?origins=http://b,null", True, "'null' is not an origin"),
        ("sp+ws://*:1?origins=", True, "'origins' must have exactly one value"),
        ("sp+tcp://*:1?origins=http://b", True, "unknown option 'origins'"),
    ],
)
def test_origins_that_cannot_work_are_refused(text: str, listening: bool, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_url(text, listening=listening)


def endpoint_of(url: ServiceUrl) -> Endpoint:
    [endpoint] = to_dial([url], SpRole.REQ, Limits())
    return endpoint


def place_of(url: ServiceUrl) -> tuple[int, int]:
    place = endpoint_of(url).place
    return place.priority, place.weight


def type_of(url: ServiceUrl) -> int:
    """Return the announced endpoint type: bytes 4 and 5 of the SP header."""
    return int.from_bytes(endpoint_of(url).make_framing().opening()[4:6], "big")


def test_options_of_channels() -> None:
    url = parse_url("sp+tcp://a:1?priority=16&weight=1000&resend=2.5&ids=draft")
    assert place_of(url) == (16, 1000)
    assert type_of(url) == DRAFT_REQ
    assert url.options["resend"] == "2.5"
    assert resend_of(url) == 2.5
    assert resend_of(parse_url("sp+tcp://a:1?resend=off")) == "off"
    assert place_of(parse_url("sp+ipc:///x?weight=2&priority=1")) == (1, 2)
    assert place_of(parse_url("inproc://x?priority=2")) == (2, 1)


def test_defaults_of_priority_weight_and_resend() -> None:
    url = parse_url("sp+tcp://a:1")
    assert place_of(url) == (1, 1)
    assert type_of(url) == REQ
    assert resend_of(url) is None


def test_settings_of_tls() -> None:
    url = parse_url("sp+tls://a:1?ca=/etc/a%20b.pem&certificate=c.pem&key=k.pem&server_name=b")
    assert url.tls == TlsSettings("/etc/a b.pem", "c.pem", "k.pem", "b")
    assert parse_url("sp+wss://a?ca=ca.pem").tls == TlsSettings("ca.pem")


def test_listening_takes_wildcards_and_port_0() -> None:
    url = parse_url("sp+tcp://*:0,127.0.0.1:1", listening=True)
    assert url.addresses == (TcpAddress("*", 0), TcpAddress("127.0.0.1", 1))
    assert parse_url("inproc://*", listening=True).addresses == (InprocAddress("*"),)
    ws = parse_url("sp+ws://[::1]:0/path", listening=True)
    assert ws.addresses == (WsAddress("::1", 0, "/path"),)


def test_listening_with_tls_has_a_certificate_and_may_check_clients() -> None:
    plain = parse_url("sp+tls://*:0?certificate=c.pem&key=k.pem", listening=True)
    assert plain.tls == TlsSettings(certificate="c.pem", key="k.pem")
    both = parse_url("sp+wss://*:0?certificate=c.pem&key=k.pem&ca=a.pem", listening=True)
    assert both.tls == TlsSettings("a.pem", "c.pem", "k.pem", verify_client=True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sp://a:1", r"did you mean sp\+tcp://a:1"),
        ("sp+udp://a:1", r"unknown scheme .sp\+udp"),
        ("sp+tcp://a", "port is missing"),
        ("sp+tcp://[::1]", "port is missing"),
        ("sp+tls://a", "port is missing"),
        ("sp+tcp:///x", "host is missing"),
        ("sp+tcp://a:1,", "host is missing"),
        ("sp+tcp://::1:7000", "in brackets"),
        ("sp+tcp://a:1/echo", "SP has no service names"),
        ("sp+tls://a:1/echo", "SP has no service names"),
        ("inproc://name/echo", "SP has no service names"),
        ("inproc://", "name is missing"),
        ("sp+inproc:///x", "name is missing"),
        ("sp+ipc://relative", "absolute"),
        ("sp+ws://a/b c", "not a valid HTTP path"),
        ("sp+tcp://*:1", "for listening"),
        ("sp+tls://a:0", "for listening"),
        ("sp+ws://a:0/", "for listening"),
        ("inproc://*", "for listening"),
        (
            "sp+tcp://a:1?service=echo",
            "unknown option 'service'; the options are priority, weight, resend",
        ),
        ("sp+tcp://a:1?dialect=0.3", "unknown option 'dialect'"),
        ("sp+tcp://a:1?ca=x", "'ca' is only for TLS"),
        ("sp+ws://a?key=x", "'key' is only for TLS"),
        ("mdp://a?server_name=x", "'server_name' is only for TLS"),
        ("sp+tcp://a:1?priority=0", "'priority' must be a whole number from 1 to 16"),
        ("sp+tcp://a:1?priority=17", "from 1 to 16"),
        ("sp+tcp://a:1?weight=1001", "'weight' must be a whole number from 1 to 1000"),
        ("sp+tcp://a:1?weight=2.5", "whole number"),
        ("sp+tcp://a:1?weight=٣", "whole number"),
        ("sp+tcp://a:1?weight=" + "9" * 5000, "whole number"),
        ("sp+tcp://a:1?weight=1&weight=2", "exactly one value"),
        ("sp+tcp://a:1?resend=0", "'resend' must be a positive number of seconds, or off"),
        ("sp+tcp://a:1?resend=-1", "positive number of seconds"),
        ("sp+tcp://a:1?resend=nan", "positive number of seconds"),
        ("sp+tcp://a:1?resend=inf", "positive number of seconds"),
        ("sp+tcp://a:1?resend=never", "positive number of seconds"),
        ("sp+tcp://a:1?ids=16", "'ids' must be draft"),
        ("sp+tls://a:1?key=k.pem", "`key` requires `certificate`"),
        ("sp+tls://a:1?server_name=.b", "not a valid server_name"),
        ("sp+tcp://a:1#x", "write %23"),
    ],
)
def test_an_invalid_url_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mdp://*:5555", "only a broker listens at such a URL"),
        ("sp+tls://127.0.0.1:0", "a listener requires certificate=FILE and key=FILE"),
        ("sp+wss://127.0.0.1:0?ca=a.pem", "a listener requires certificate=FILE"),
        ("sp+tls://*:0?certificate=c&key=k&server_name=x", "'server_name' is only for connecting"),
        ("sp+tcp://:7000", r"host is missing; write \*"),
        ("sp+tcp://*:65536", "not a port"),
    ],
)
def test_invalid_listening_urls_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text, listening=True)


def test_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="SP has no user name and password") as caught:
        parse_url("sp+tls://user:secret@a:1?ca=x")
    assert "secret" not in str(caught.value)


def test_the_reference_describes_every_scheme_and_option() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/urls.md").read_text()
    for scheme, protocol in SCHEMES.items():
        assert f"`{scheme}://" in page
        for option in spoken(protocol).SCHEMES[scheme].options:
            assert f"| `{option}` |" in page


def test_registry_and_files_have_the_same_schemes() -> None:
    in_files = {
        scheme: protocol for protocol in SCHEMES.values() for scheme in spoken(protocol).SCHEMES
    }
    assert in_files == SCHEMES


@example("sp+ipc", "/\ud800", True)
@example("sp+tcp", "a\0b:1", False)
@given(
    scheme=st.sampled_from([*SCHEMES, "sp+udp"]),
    rest=st.text(st.characters(exclude_categories=())) | st.text("ab:/?&=,@[]%*#.0123456789"),
    listening=st.booleans(),
)
def test_any_text_is_a_url_or_refused(scheme: str, rest: str, listening: bool) -> None:
    try:
        url = parse_url(f"{scheme}://{rest}", listening=listening)
    except ConfigurationError:
        return
    assert url.addresses
    assert str(url)
