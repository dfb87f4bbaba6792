"""`AsyncClient` and `Worker` over SP: error messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.sp import Echo, place
from tests.e2e.sp_loop import Run, on_loop
from tests.support.patience import failure_on_loop

from requite.client import AsyncClient
from requite.errors import (
    CallTimeout,
    ConfigurationError,
    LocalViolation,
    TransportError,
)
from requite.request import RetryPolicy
from requite.worker import Worker, service

__all__ = ["on_loop"]

pytestmark = pytest.mark.e2e

TCP = "sp+tcp://127.0.0.1:0"
UNREACHABLE = "sp+tcp://127.0.0.1:1"


def test_an_unreachable_service_is_reported_with_the_reason(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient([UNREACHABLE, "inproc://nobody"]) as client:
            error = await failure_on_loop(
                CallTimeout,
                "connection refused; .*no listener",
                lambda timeout: client.call(b"x", timeout=timeout),
            )
            assert not error.may_have_executed
            assert error.attempts == 0
        async with AsyncClient(bind=TCP) as client:
            with pytest.raises(CallTimeout, match=r"no peer is connected to tcp://127.0.0.1:\d"):
                await client.call(b"x", timeout=0.05)

    on_loop(scenario())


def test_a_peer_of_the_wrong_type_is_reported(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient(bind=TCP) as other, AsyncClient(other.addresses) as client:
            await failure_on_loop(
                CallTimeout,
                r"SP endpoint type 48 \(REQ\); this REQ accepts only",
                lambda timeout: client.call(b"x", timeout=timeout),
            )

    on_loop(scenario())


def test_draft_types_connect_only_to_draft_types(on_loop: Run) -> None:
    async def scenario() -> None:
        async with Worker(Echo().service, bind=f"{TCP}?ids=draft") as worker:
            [url] = worker.addresses
            async with AsyncClient(url, timeout=20) as client:
                assert (await client.call(b"x")).body == b"x"
            async with AsyncClient(url.removesuffix("?ids=draft")) as client:
                await failure_on_loop(
                    CallTimeout,
                    "this REQ accepts only 49",
                    lambda timeout: client.call(b"x", timeout=timeout),
                )

    on_loop(scenario())


@pytest.mark.parametrize("transport", ["tcp", "ipc", "inproc"])
def test_an_address_in_use_is_refused_and_other_addresses_are_released(
    on_loop: Run, transport: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Worker(Echo().service, bind=place(transport, tmp_path)) as worker:
            [taken] = worker.addresses
            free = place("ipc", tmp_path)
            with pytest.raises(
                TransportError, match=r"cannot listen at .*(in use|another process)"
            ):
                await Worker(Echo().service, bind=[free, taken]).start()
            client = AsyncClient(bind=[free, taken])
            with pytest.raises(TransportError, match="cannot listen at"):
                await client.call(b"x")
            assert client.addresses == []
            await client.close()
            async with AsyncClient(bind=free) as client:  # the address was released
                assert client.addresses

    on_loop(scenario())


@pytest.mark.parametrize(
    ("url", "settings", "match"),
    [
        ((), {}, "no URL was given"),
        ([UNREACHABLE, "mdp://localhost/echo"], {}, "have mdp and sp"),
        ("mdp://localhost/echo", {"bind": TCP}, "have mdp and sp"),
        (["mdp://a/echo", "mdp://b/echo"], {}, "takes one URL"),
        (UNREACHABLE, {"service": "echo"}, "has no service names"),
        (UNREACHABLE, {"heartbeat": 1.0}, "no heartbeats"),
        (UNREACHABLE, {"dialect": "0.3"}, "no dialects"),
        ([f"{UNREACHABLE}?resend=1", f"{UNREACHABLE}?resend=off"], {}, "'resend'"),
        (UNREACHABLE, {"retry": 3}, "retry must be a RetryPolicy"),
        ("mdp://localhost/echo", {"retry": 3}, "retry must be a RetryPolicy"),
        ("mdp://localhost/echo", {"hold_back": "x"}, "hold_back must be a number"),
        (UNREACHABLE, {"hold_back": "x"}, "hold_back must be a number"),
        (f"{UNREACHABLE}?resend=off", {"retry": RetryPolicy()}, "use one of them"),
        (f"{UNREACHABLE}?resend=0.3", {"retry": RetryPolicy()}, "use one of them"),
    ],
)
def test_invalid_client_settings_are_refused(
    url: str | Sequence[str], settings: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigurationError, match=match):
        AsyncClient(url, **settings)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"heartbeat": 1.0}, "no heartbeats"),
        ({"handler_timeout": 1.0}, "no handler leases"),
        ({"dialect": "0.3"}, "no dialects"),
        ({"hops": 0}, "hops is 1"),
        ({"hops": "x"}, "hops must be a whole number"),
        ({"capacity": 0}, "capacity"),
    ],
)
def test_invalid_worker_settings_are_refused(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        Worker(UNREACHABLE, Echo().service, **settings)


@pytest.mark.parametrize("option", ["resend=1", "weight=4", "priority=2"])
def test_url_options_without_effect_on_a_worker_are_refused(option: str) -> None:
    for places in ((f"{UNREACHABLE}?{option}", ()), ((), f"{TCP}?{option}")):
        with pytest.raises(ConfigurationError, match="has no effect here"):
            Worker(places[0], Echo().service, bind=places[1])


def test_a_service_before_the_url_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="pass the URL before the services"):
        Worker(Echo().service, UNREACHABLE)  # type: ignore[arg-type]


def test_a_worker_over_sp_has_one_service() -> None:
    with pytest.raises(ConfigurationError, match="a worker has one"):
        Worker(UNREACHABLE, Echo().service, service("other")(Echo().serve))
    with pytest.raises(ConfigurationError, match="at least one service"):
        Worker(UNREACHABLE)
    with pytest.raises(ConfigurationError, match="does not forward requests"):
        Worker("mdp://localhost", Echo().service, hops=3)


def test_options_that_sp_cannot_carry_are_refused(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient(UNREACHABLE) as client:
            with pytest.raises(ConfigurationError, match="no partial replies"):
                client.stream(b"x")
            with pytest.raises(ConfigurationError, match="not carry idempotency keys"):
                await client.call(b"x", idempotency_key=b"k")
            with pytest.raises(ConfigurationError, match="has no service names"):
                await client.call(b"x", service="echo")
            with pytest.raises(ConfigurationError, match="2 frames, but SP carries only one"):
                await client.call([b"x", b"y"])

    on_loop(scenario())


def test_a_listening_client_must_be_opened_first(on_loop: Run) -> None:
    async def scenario() -> None:
        client = AsyncClient(bind=TCP)
        with pytest.raises(LocalViolation, match="async with"):
            client.start(b"x")
        assert client.addresses == []
        with pytest.raises(CallTimeout):
            await client.call(b"x", timeout=0.05)  # opens it
        assert client.addresses
        await client.close()

    on_loop(scenario())
