"""Freelance URLs: parsing, and the clients and servers that they configure."""

from __future__ import annotations

from itertools import repeat
from typing import Any

import pytest

import requite
from requite.errors import ConfigurationError
from requite.examples import count, echo
from requite.protocols.freelance.agent import AgentClient
from requite.protocols.freelance.client_base import FreelanceClient
from requite.protocols.freelance.failover import FailoverClient
from requite.protocols.freelance.shotgun import ShotgunClient
from requite.request import RetryPolicy
from requite.speaks.endpoints import bound_at
from requite.speaks.flp import LANES_MAX
from requite.speaks.plans import ClientPlan, ClientSettings, WorkerSettings
from requite.speaks.registry import client_plan, parse_url, read_endpoints
from requite.transport.address import InprocAddress, IpcAddress, TcpAddress
from requite.worker.plans import plans_for

SETTINGS: dict[str, Any] = {
    "retry": None,
    "slots": 10,
    "heartbeat": None,
    "dialect": None,
    "connections": 64,
    "message_size_max": 1000,
}


def stack(url: Any, **settings: Any) -> ClientPlan:
    return client_plan(read_endpoints(url), ClientSettings(**{**SETTINGS, **settings}))


def engine(url: Any, **settings: Any) -> Any:
    made = stack(url, **settings).make_engine(b"a-client", None)
    assert isinstance(made, FreelanceClient)
    return made


def listen(bind: Any, *services: Any, url: Any = (), **settings: Any) -> Any:
    plain = dict.fromkeys(WorkerSettings.__dataclass_fields__)
    given = WorkerSettings(**{**plain, "message_size_max": 1000, "name": b"a-server", **settings})
    return plans_for(read_endpoints(url, bind), services or [echo], given)


# --- parsing --------------------------------------------------------------------------------------
def test_addresses() -> None:
    url = parse_url("flp://a:1,[::1]:2")
    assert (url.protocol, url.addresses) == ("flp", (TcpAddress("a", 1), TcpAddress("::1", 2)))
    assert parse_url("flp+ipc:///run/x.sock").addresses == (IpcAddress("/run/x.sock"),)
    assert parse_url("flp+inproc://x").addresses == (InprocAddress("x"),)


@pytest.mark.parametrize(
    ("text", "listening", "why"),
    [
        ("flp://a", False, "port is missing"),
        ("flp://a:1/echo", False, "has no service names"),
        ("flp://a:1?service=echo", False, "unknown option 'service'"),
        ("flp://u:p@a:1", False, "no user name and password"),
        ("flp://a:0", False, "for listening"),
        ("flp://*:1", False, "for listening"),
        ("flp://a:1?model=best", False, "one of failover, shotgun, agent"),
        ("flp://a:1?public=tcp://b:1", False, "for servers"),
        ("flp://*:1", True, "requires public=tcp://HOST:PORT"),
        ("flp://*:1?public=b", True, "'public'.*no scheme"),
        ("flp://*:1?public=tls://b:1", True, "'public'.*cannot be used here"),
        ("flp://*:1?public=tcp://*:1", True, "one host and port"),
        ("flp://a:1,b:1?public=tcp://b:1", True, "the URL has several"),
    ],
)
def test_invalid_urls_are_refused(text: str, listening: bool, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        parse_url(text, listening=listening)


def test_a_listening_url_gives_a_url_to_dial() -> None:
    places = [TcpAddress("127.0.0.1", 5), IpcAddress("/run/a b.sock"), InprocAddress("x")]
    urls = bound_at(places, repeat("?model=shotgun"), "flp")
    assert urls == [
        "flp://127.0.0.1:5?model=shotgun",
        "flp+ipc:///run/a%20b.sock?model=shotgun",
        "flp+inproc://x?model=shotgun",
    ]
    assert [parse_url(url).addresses[0] for url in urls] == places


# --- clients --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "kind"),
    [("agent", AgentClient), ("failover", FailoverClient), ("shotgun", ShotgunClient)],
)
def test_the_model_chooses_the_engine(model: str, kind: type) -> None:
    assert isinstance(engine(f"flp://a:1,b:1?model={model}"), kind)
    assert isinstance(engine("flp://a:1"), AgentClient)


def test_persistent_connections_per_server_depend_on_the_model() -> None:
    assert len(stack(["flp://a:1,b:1", "flp://b:1"]).connections.keep) == 2
    assert len(stack("flp://a:1,b:1?model=failover").connections.keep) == 2 * LANES_MAX
    assert len(stack("flp://a:1?model=failover", connections=3).connections.keep) == 3


@pytest.mark.parametrize(
    ("url", "retry", "attempts", "attempt_timeout"),
    [
        ("flp://a:1", None, 3, None),
        ("flp://a:1,b:1,c:1,d:1", None, 4, None),
        ("flp://a:1,b:1", RetryPolicy(attempts=7, attempt_timeout=0.5), 7, 0.5),
        ("flp://a:1?model=failover", None, 3, 1.0),
        ("flp://a:1,b:1?model=failover", None, 2, 1.0),
        ("flp://a:1,b:1?model=failover", RetryPolicy(attempts=1), 1, 1.0),
        ("flp://a:1,b:1?model=shotgun", None, 3, None),
    ],
)
def test_attempts_and_attempt_timeout(
    url: str, retry: RetryPolicy | None, attempts: int, attempt_timeout: float | None
) -> None:
    policy = engine(url, retry=retry)._policy.retry
    assert (policy.attempts, policy.attempt_timeout) == (attempts, attempt_timeout)


@pytest.mark.parametrize(
    ("url", "settings", "why"),
    [
        ("flp://a:1", {"dialect": "0.3"}, "no dialects"),
        ("flp://a:1?model=shotgun", {"retry": RetryPolicy()}, "never retries"),
        ("flp://a:1?model=failover", {"heartbeat": 1.0}, "does not send heartbeats"),
        (["flp://a:1", "flp://b:1?model=shotgun"], {}, "different values of the option 'model'"),
    ],
)
def test_settings_without_effect_are_refused(url: Any, settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        stack(url, **settings)


def test_a_client_does_not_listen() -> None:
    with pytest.raises(ConfigurationError, match="connects to its servers"):
        requite.Client(bind="flp://127.0.0.1:0")


def test_unsupported_call_options_are_refused() -> None:
    with requite.Client("flp://127.0.0.1:1") as client:
        with pytest.raises(ConfigurationError, match="no partial replies"):
            client.stream(b"x")
        with pytest.raises(ConfigurationError, match="not carry idempotency keys"):
            client.start(b"x", idempotency_key=b"k")
        with pytest.raises(ConfigurationError, match="has no service names"):
            client.start(b"x", service="echo")
        with pytest.raises(ConfigurationError, match="1025 frames"):
            client.start([b""] * 1025)
    shotgun = requite.Client("flp://127.0.0.1:1?model=shotgun")
    with shotgun, pytest.raises(ConfigurationError, match="runs several times"):
        shotgun.start(b"x", idempotent=False)


# --- servers --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"heartbeat": 1.0}, "clients send pings"),
        ({"dialect": "0.3"}, "no dialects"),
        ({"handler_timeout": 1.0}, "no handler leases"),
        ({"hops": 3}, "no devices"),
        ({"capacity": 0}, "capacity"),
        ({"capacity": "4"}, "whole number"),
    ],
)
def test_server_settings_without_effect_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        listen("flp://127.0.0.1:0", **settings)


def test_a_server_listens_and_has_one_service_and_a_name_that_fits() -> None:
    with pytest.raises(ConfigurationError, match="a Freelance server listens"):
        listen((), url="flp://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="a server has one"):
        listen("flp://127.0.0.1:0", echo, count)
    with pytest.raises(ConfigurationError, match="be its identity"):
        listen(f"flp://*:1?public=tcp://{'long.' * 60}org:1")
