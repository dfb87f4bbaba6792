"""Pirate URLs: parsing, and errors of clients, workers and queues."""

from __future__ import annotations

from typing import Any

import pytest

from requite import AsyncClient, Client, RetryPolicy, Worker, service
from requite.errors import ConfigurationError
from requite.queue import Queue
from requite.speaks.registry import parse_url
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress
from requite.worker import Service


@service("echo")
async def echo(request: Any) -> bytes:
    return bytes(request.body)


@service("other")
async def other(request: Any) -> bytes:
    return bytes(request.body)


@pytest.mark.parametrize(
    ("text", "addresses", "options"),
    [
        ("pirate://a:5555", (TcpAddress("a", 5555),), {}),
        ("pirate://a:1,b:2", (TcpAddress("a", 1), TcpAddress("b", 2)), {}),
        ("pirate://a:1?protocol=simple", (TcpAddress("a", 1),), {"protocol": "simple"}),
        ("pirate+ipc:///run/a.sock", (IpcAddress("/run/a.sock"),), {}),
        ("pirate+inproc://here", (InprocAddress("here"),), {}),
    ],
)
def test_parsing(text: str, addresses: tuple[Any, ...], options: dict[str, str]) -> None:
    url = parse_url(text)
    assert (url.protocol, url.service) == ("pirate", "")
    assert (url.addresses, url.options) == (addresses, options)


@pytest.mark.parametrize(
    ("text", "listening", "why"),
    [
        ("pirate://a", False, "port"),
        ("pirate://a:0", False, "for listening"),
        ("pirate://*:5555", False, "for listening"),
        ("pirate://a:1/echo", False, "have no service names"),
        ("pirate://u:p@a:1", False, "no user name and password"),
        ("pirate://a:1?protocol=majordomo", False, "must be simple or paranoid"),
        ("pirate://a:1?protocol=simple", True, "for workers that connect to a queue"),
        ("pirate://a:1?dialect=0.2", False, "unknown option"),
    ],
)
def test_invalid_urls_are_refused(text: str, listening: bool, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text, listening=listening)


@pytest.mark.parametrize(
    ("url", "settings", "why"),
    [
        ("pirate://a:1?protocol=simple", {}, "only workers have the URL option"),
        ("pirate://a:1", {"heartbeat": 1.0}, "no heartbeats"),
        ("pirate://a:1", {"dialect": "0.2"}, "no dialects"),
        (("pirate://a:1", "pirate://b:1"), {}, "takes one URL"),
    ],
)
def test_invalid_client_settings_are_refused(url: Any, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Client(url, **settings)


def test_unsupported_call_options_are_refused() -> None:
    with Client("pirate://127.0.0.1:1") as client:
        with pytest.raises(ConfigurationError, match="not carry idempotency keys"):
            client.call(b"x", idempotency_key=b"k")
        with pytest.raises(ConfigurationError, match="no partial"):
            next(iter(client.stream(b"x")))
        with pytest.raises(ConfigurationError, match="1025 frames"):
            client.call([b""] * 1025)
    with pytest.raises(ConfigurationError, match="has no service names"):
        Client("pirate://127.0.0.1:1", service="echo")


def test_a_client_cannot_listen() -> None:
    with pytest.raises(ConfigurationError, match="listen"):
        AsyncClient(bind="pirate://127.0.0.1:0")


@pytest.mark.parametrize(
    ("given", "services", "settings", "why"),
    [
        ("pirate://a:1", (echo, other), {}, "a worker has one"),
        ("pirate://a:1", (echo,), {"bind": "pirate://127.0.0.1:0"}, "not both"),
        ("pirate://a:1", (echo,), {"dialect": "0.1"}, "no dialects"),
        ("pirate://a:1", (echo,), {"hops": 3}, "no limit of hops"),
        ("pirate://a:1", (echo,), {"handler_timeout": 3.0}, "no handler leases"),
        ("pirate://a:1", (echo,), {"capacity": 0}, "capacity must be 1 to"),
        ("pirate://a:1", (echo,), {"threads": 2}, "set `capacity`"),
        ("pirate://a:1?protocol=simple", (echo,), {"heartbeat": 1.0}, "no heartbeats"),
        ((), (echo,), {"bind": "pirate://127.0.0.1:0", "heartbeat": 1.0}, "no heartbeats"),
        ((), (echo,), {"bind": "pirate://127.0.0.1:0", "capacity": 2000}, "capacity must be 1 to"),
    ],
)
def test_invalid_worker_settings_are_refused(
    given: Any, services: tuple[Service, ...], settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Worker(given, *services, **settings)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"protocol": "majordomo"}, "simple or paranoid"),
        ({"front": ()}, "an address for its front"),
        ({"back": "ws://127.0.0.1:1/"}, "cannot be used here"),
        ({"message_size_max": 0}, "at least 1"),
    ],
)
def test_invalid_queue_settings_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Queue(**settings)


def test_the_times_of_the_guide_are_the_default() -> None:
    from requite.speaks.pirate import _retry

    assert (_retry(None).attempts, _retry(None).attempt_timeout) == (3, 2.5)
    assert _retry(RetryPolicy(attempts=7)).attempt_timeout == 2.5
    assert _retry(RetryPolicy(attempts=1)).attempt_timeout is None
    assert _retry(RetryPolicy(attempt_timeout=9.0)).attempt_timeout == 9.0
