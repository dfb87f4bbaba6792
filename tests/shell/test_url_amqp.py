"""AMQP URLs: parsing, and errors of clients and workers."""

from __future__ import annotations

from ssl import TLSVersion
from typing import Any

import pytest
from tests.support.patience import failure

from requite import Client, Worker, service
from requite.errors import CallTimeout, ConfigurationError
from requite.speaks.registry import parse_url
from requite.transport.address import TcpAddress, TlsAddress
from requite.transport.tls import TlsSettings


@service("echo")
async def echo(request: Any) -> bytes:
    return bytes(request.body)


@service("other")
async def other(request: Any) -> bytes:
    return bytes(request.body)


@pytest.mark.parametrize(
    ("text", "address", "vhost", "name"),
    [
        ("amqp://a", TcpAddress("a", 5672), "/", ""),
        ("amqp://a/", TcpAddress("a", 5672), "/", ""),
        ("amqp://a:1/%2F?queue=echo", TcpAddress("a", 1), "/", "echo"),
        ("amqp://a/v?queue=a%2Fb", TcpAddress("a", 5672), "v", "a/b"),
        ("amqp://a/v%2Fw?pool=core&key=42", TcpAddress("a", 5672), "v/w", "42"),
        ("amqp://a?pool=core&key=K%C3%B6ln%00", TcpAddress("a", 5672), "/", "Köln\0"),
        ("amqp://a?pool=core&key=", TcpAddress("a", 5672), "/", ""),
        ("amqp://[::1]:1/v", TcpAddress("::1", 1), "v", ""),
    ],
)
def test_parsing(text: str, address: Any, vhost: str, name: str) -> None:
    url = parse_url(text)
    assert (url.protocol, url.addresses, url.service) == ("amqp", (address,), name)
    assert url.options["vhost"] == vhost
    assert url.tls is None


def test_user_and_password_are_decoded_and_hidden() -> None:
    url = parse_url("amqp://us%40er:p%2Fw@a/v")
    assert (url.user, url.password) == ("us@er", "p/w")
    assert "p/w" not in repr(url)


def test_the_key_of_a_certificate_is_certificate_key() -> None:
    url = parse_url("amqps://a/v?pool=core&key=42&ca=ca.pem&certificate=c&certificate_key=k")
    assert url.addresses == (TlsAddress("a", 5671),)
    oldest = TLSVersion.TLSv1_2  # for RabbitMQ on older versions of Erlang
    assert url.tls == TlsSettings("ca.pem", "c", "k", minimum_version=oldest)
    assert url.service == "42"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amqp://", "host is missing"),
        ("amqp://a,b/v", "only one host"),
        ("amqp://a/v/w", "write %2F for a /"),
        ("amqp://a/v?key=42", "'key' requires pool=NAME"),
        ("amqp://a/v?activity=x", "'activity' requires pool=NAME"),
        ("amqp://a/v?pool=&key=1", "'pool' must have exactly one value"),
        ("amqp://a/v?queue=", "'queue' must have exactly one value"),
        ("amqp://a/v?pool=core&key=1&key=2", "'key' must have exactly one value"),
        ("amqp://a/v?pool=core&key=%FF", "not UTF-8"),
        ("amqp://a/v?pool=core&key=50%", "write %25 for a %"),
        ("amqp://a/v%2?queue=echo", "write %25 for a %"),
        ("amqp://a/v?service=echo", "unknown option 'service'"),
        ("amqp://user@a/v", "form user:password"),
        ("amqp://a:0/v", "for listening"),
        ("amqp://a/v?ca=x", "only for TLS"),
        ("amqps://a/v?certificate_key=x", "`key` requires `certificate`"),
    ],
)
def test_invalid_urls_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text)


def test_listening_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="only RabbitMQ listens at such a URL"):
        Worker(echo, bind="amqp://a/v")


@pytest.mark.parametrize(
    ("url", "how", "why"),
    [
        ("amqp://a", {}, "queue=NAME"),
        ("amqp://a?pool=core", {}, "needs a key"),
        ("amqp://a?queue=amq.gen-1", {}, "reserved for RabbitMQ"),
        ("amqp://a?queue=" + "q" * 256, {}, r"queue=\.\.\..*in AMQP is 255"),
        ("amqp://a?pool=core&key=" + "k" * 300, {}, r"key=\.\.\..*in AMQP is 255"),
        ("amqp://a?pool=core&key=a%00b", {}, r"'a\\x00b'.*NUL"),
        ("amqp://a?pool=core&key=" + "%2F" * 100, {}, r"key=\.\.\..*in AMQP is 255"),
        ("amqp://a?pool=core&key=1&queue=q", {}, "both pool= and queue="),
        ("amqp://a?queue=q&id=w", {}, "option 'id' is only for workers"),
        ("amqp://a?queue=q&confirm=maybe", {}, "must be yes or no"),
        ("amqp://a?queue=q&reply=none", {}, "must be queue or direct"),
        ("amqp://a?queue=q", {"dialect": "0.3"}, "no dialects"),
        ("amqp://a?queue=q", {"heartbeat": 60.0}, "heartbeat interval"),
        ("amqp://a?queue=q", {"slots": 0}, "slots"),
        (["amqp://a?queue=q", "amqp://b?queue=q"], {}, "takes one URL"),
    ],
)
def test_invalid_client_settings_are_refused(url: Any, how: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why), Client(url, **how) as client:
        client.call(b"")


@pytest.mark.parametrize(
    ("body", "how", "why"),
    [
        ([b"a", b"b"], {}, "2 frames, but AMQP carries only one"),
        (b"a", {"service": ""}, "queue=NAME"),
        (b"x" * 101, {}, "message_size_max"),
    ],
)
def test_invalid_requests_are_refused(body: Any, how: dict[str, Any], why: str) -> None:
    with (
        Client("amqp://127.0.0.1:1?queue=q", message_size_max=100) as client,
        pytest.raises(ConfigurationError, match=why),
    ):
        client.call(body, **how)


@pytest.mark.parametrize(
    ("url", "how", "why"),
    [
        ("amqp://a?pool=core", {}, "a worker of a pool needs a key"),
        ("amqp://a?confirm=yes", {}, "option 'confirm' is only for clients"),
        ("amqp://a", {"capacity": 0}, "capacity"),
        ("amqp://a", {"capacity": 70_000}, "capacity"),
        ("amqp://a", {"handler_timeout": 1.0}, "no handler leases"),
        ("amqp://a", {"hops": 3}, "no devices"),
        ("amqp://a?queue=amq.x", {}, "reserved for RabbitMQ"),
    ],
)
def test_invalid_worker_settings_are_refused(url: str, how: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Worker(url, echo, **how)


@pytest.mark.parametrize("option", ["queue=q", "pool=core&key=1"])
def test_one_queue_has_one_service(option: str) -> None:
    Worker("amqp://a", echo, other)
    with pytest.raises(ConfigurationError, match="a queue has one service"):
        Worker(f"amqp://a?{option}", echo, other)


def test_an_empty_key_is_valid() -> None:
    Worker("amqp://a?pool=core&key=", echo)
    with Client("amqp://127.0.0.1:1?pool=core&key=") as client:
        failure(CallTimeout, "never published", lambda timeout: client.call(b"", timeout=timeout))
