"""Parsing of `url` and `bind`, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from requite.errors import ConfigurationError
from requite.speaks.endpoints import bound_at
from requite.speaks.registry import parse_url, read_endpoints
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress, WsAddress


def test_one_url_or_several() -> None:
    one = read_endpoints("sp+tcp://a:1")
    two = read_endpoints(["sp+tcp://a:1", "sp+ipc:///b"], bind="sp+tcp://*:0")
    assert [str(url) for url in one.dials] == ["sp at tcp://a:1"]
    assert str(two) == "sp at tcp://a:1, sp at ipc:///b, sp at tcp://*:0 (bound)"
    assert one.protocol == two.protocol == "sp"


def test_the_service_is_read_from_the_url() -> None:
    assert read_endpoints("mdp://a/echo").service == "echo"
    assert read_endpoints("mdp://a").service == ""


def test_inproc_is_detected_in_url_and_bind() -> None:
    assert read_endpoints((), "inproc://x").is_inproc
    assert read_endpoints(["sp+tcp://a:1", "inproc://x"]).is_inproc
    assert not read_endpoints("sp+tcp://a:1").is_inproc


def test_a_protocol_with_a_broker_dials_once() -> None:
    assert read_endpoints("mdp://a,b/echo").only_dialled().service == "echo"
    with pytest.raises(ConfigurationError, match="by commas"):
        read_endpoints(["mdp://a/echo", "mdp://b/echo"]).only_dialled()
    with pytest.raises(ConfigurationError, match="cannot listen"):
        read_endpoints((), "sp+tcp://*:0").only_dialled()


@pytest.mark.parametrize(
    ("url", "bind", "match"),
    [
        ((), (), "no URL was given"),
        (["sp+tcp://a:1", "mdp://b/echo"], (), "these have mdp and sp"),
        ("sp+tcp://*:1", (), "for listening"),
        ((), "mdp://a", "requite broker"),
    ],
)
def test_invalid_endpoints_are_refused(
    url: str | Sequence[str], bind: str | Sequence[str], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        read_endpoints(url, bind)


@pytest.mark.parametrize(
    ("urls", "match"),
    [
        (None, "a URL must be a str, not None"),
        (b"sp+tcp://h:1", r"a URL must be a str, not b'sp\+tcp://h:1' \(bytes\)"),
        (["sp+tcp://h:1", b"x"], "a URL must be a str, not b'x'"),
        (7, r"a URL must be a str, not 7 \(int\)"),
    ],
)
def test_a_url_must_be_a_string(urls: Any, match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        read_endpoints(urls)
    with pytest.raises(ConfigurationError, match=match):
        read_endpoints((), urls)


def test_urls_of_bound_addresses_keep_ids_draft() -> None:
    endpoints = read_endpoints((), ["sp+tcp://a:1,b:2?ids=draft", "sp+tcp://c:3"])
    assert endpoints.peer_queries == ["?ids=draft", "?ids=draft", ""]
    places = [address for url in endpoints.binds for address in url.addresses]
    urls = ["sp+tcp://a:1?ids=draft", "sp+tcp://b:2?ids=draft", "sp+tcp://c:3"]
    assert bound_at(places, endpoints.peer_queries) == urls


@pytest.mark.parametrize(
    "address",
    [
        TcpAddress("127.0.0.1", 7),
        TcpAddress("::1", 7),
        WsAddress("localhost", 80, "/a%20b"),
        IpcAddress("/tmp/a b%c?d#e@f.sock"),
        InprocAddress("name"),
    ],
)
def test_a_listening_address_can_be_dialled(address: TcpAddress) -> None:
    [url] = bound_at([address])
    assert parse_url(url).addresses == (address,)
