"""Groups of a pool at a broker: URLs, service names and environment variables."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from requite import Client, Worker, service
from requite.errors import ConfigurationError
from requite.protocols.majordomo.dialects import check_service_name
from requite.protocols.majordomo.keyed import key_of, managers_of, meant_by, prefix_of, service_of
from requite.speaks.registry import parse_url
from requite.transport.tls import TlsSettings
from requite.worker.environment import place_of


@service("price")
async def price(request: Any) -> bytes:
    return bytes(request.body)


@service("stock")
async def stock(request: Any) -> bytes:
    return bytes(request.body)


@pytest.mark.parametrize(
    ("key", "encoded"),
    [
        ("42", "42"),
        ("", ""),
        ("a/b", "a%2Fb"),
        ("100%", "100%25"),
        ("Köln", "K%C3%B6ln"),
        ("\0\n", "%00%0A"),
        ("!managers", "%21managers"),
        ("mmi.list", "mmi.list"),
    ],
)
def test_the_service_of_a_key(key: str, encoded: str) -> None:
    name = service_of("core", key)
    assert name == f"core/{encoded}"
    assert key_of("core", name) == key
    path, option = encoded.replace("%", "%25"), encoded
    assert parse_url(f"mdp://a/core/{path}").service == name
    assert parse_url(f"mdp://a?pool=core&key={option}").service == name
    assert parse_url(f"mdp+ipc:///run/a.sock?pool=core&key={option}").service == name


@given(st.text(max_size=300))
def test_any_key_has_one_service_or_is_refused(key: str) -> None:
    if len(quote(key, safe="")) > 255 - len("core/"):
        with pytest.raises(ConfigurationError, match="key=") as refused:
            service_of("core", key)
        assert str(len(quote(key, safe="")) + len("core/")) in str(refused.value)
        return
    name = service_of("core", key)
    assert check_service_name(name.encode()) == name
    assert key_of("core", name) == key
    assert name != managers_of("core")


@pytest.mark.parametrize("name", ["core/a/b", "core/%c3%b6", "core/%41", "core/ö", "core/!x"])
def test_other_spellings_of_a_key_are_refused_with_a_suggestion(name: str) -> None:
    assert key_of("core", name) is None
    meant = meant_by("core", name)
    assert meant is not None
    assert key_of("core", service_of("core", meant)) == meant


@pytest.mark.parametrize("name", ["core", "cores/1", "Core/1", "core/%FF"])
def test_names_without_a_key_are_refused(name: str) -> None:
    assert meant_by("core", name) is None
    assert key_of("core", name) is None


def test_a_pool_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="a pool needs a name"):
        prefix_of("")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mdp://a?pool=core", "both options"),
        ("mdp://a?key=42", "both options"),
        ("mdp://a/echo?pool=core&key=42", "a service, 'echo', and a group"),
        ("mdp://a?pool=&key=42", "'pool' must have exactly one value"),
        (f"mdp://a?pool=core&key={'x' * 300}", "has 305 bytes; the maximum is 255"),
        (f"mdp://a?pool=core&key={'%C3%B6' * 50}", "has 305 bytes"),
    ],
)
def test_invalid_urls_are_refused(url: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Client(url)


def test_a_key_too_long_for_a_name_is_refused_by_the_call() -> None:
    with (
        Client("mdp://127.0.0.1:1", timeout=1.0) as client,
        pytest.raises(ConfigurationError, match="255"),
    ):
        client.call(b"", service=f"core/{'x' * 300}")


def test_a_worker_of_a_group_serves_under_its_name() -> None:
    assert "price" in repr(Worker("mdp://a?pool=core&key=42", price))
    with pytest.raises(ConfigurationError, match="a group of a pool has one service"):
        Worker("mdp://a?pool=core&key=42", price, stock)
    with pytest.raises(ConfigurationError, match="must not name a service"):
        Worker("mdp://a/core/42", price)


ENVIRON = {
    "WORKER_BROKER_URL": "mdp://a:5555",
    "WORKER_POOL": "core",
    "WORKER_KEY": "a/b ö",
    "WORKER_ID": "w1",
    "WORKER_PREFETCH": "3",
}


def test_the_environment_of_a_worker() -> None:
    place = place_of(ENVIRON)
    assert parse_url(place.url).service == service_of("core", "a/b ö")
    assert place.prefetch == 3
    older = place_of({**ENVIRON, "WORKER_BROKER_URL": "mdp://a?dialect=0.2"})
    assert parse_url(older.url).options["dialect"] == "0.2"
    secure = place_of({**ENVIRON, "WORKER_BROKER_URL": "mdp+tls://a?ca=ca.pem&certificate=w.pem"})
    assert parse_url(secure.url).tls == TlsSettings("ca.pem", "w.pem")
    assert parse_url(secure.url).service == service_of("core", "a/b ö")


def test_an_incomplete_or_contradictory_environment_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lacks WORKER_KEY"):
        place_of({name: value for name, value in ENVIRON.items() if name != "WORKER_KEY"})
    with pytest.raises(ConfigurationError, match="are both set"):
        place_of({**ENVIRON, "WORKER_AMQP_URL": "amqp://a"})
