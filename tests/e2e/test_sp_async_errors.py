"""`AsyncClient` and `Worker` over SP: errors say what is wrong."""

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
NOWHERE = "sp+tcp://127.0.0.1:1"


def test_nobody_there_is_told_with_the_reason(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient([NOWHERE, "inproc://nobody"]) as client:
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


def test_a_peer_of_the_wrong_type_is_told(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient(bind=TCP) as other, AsyncClient(other.addresses) as client:
            await failure_on_loop(
                CallTimeout,
                r"SP endpoint type 48 \(REQ\); this REQ accepts only",
                lambda timeout: client.call(b"x", timeout=timeout),
            )

    on_loop(scenario())


def test_draft_types_meet_draft_types_only(on_loop: Run) -> None:
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
def test_an_address_in_use_is_refused_and_nothing_is_left(
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
            async with AsyncClient(bind=free) as client:  # it was given back
                assert client.addresses

    on_loop(scenario())


@pytest.mark.parametrize(
    ("url", "settings", "match"),
    [
        ((), {}, "no URL was given"),
        ([NOWHERE, "mdp://localhost/echo"], {}, "have mdp and sp"),
        ("mdp://localhost/echo", {"bind": TCP}, "have mdp and sp"),
        (["mdp://a/echo", "mdp://b/echo"], {}, "takes one URL"),
        (NOWHERE, {"service": "echo"}, "has no service names"),
        (NOWHERE, {"heartbeat": 1.0}, "no heartbeats"),
        (NOWHERE, {"dialect": "0.3"}, "no dialects"),
        ([f"{NOWHERE}?resend=1", f"{NOWHERE}?resend=off"], {}, "'resend'"),
        (NOWHERE, {"retry": 3}, "retry must be a RetryPolicy"),
        ("mdp://localhost/echo", {"retry": 3}, "retry must be a RetryPolicy"),
        ("mdp://localhost/echo", {"hold_back": "x"}, "hold_back must be a number"),
        (NOWHERE, {"hold_back": "x"}, "hold_back must be a number"),
        (f"{NOWHERE}?resend=off", {"retry": RetryPolicy()}, "use one of them"),
        (f"{NOWHERE}?resend=0.3", {"retry": RetryPolicy()}, "use one of them"),
    ],
)
def test_what_cannot_work_is_refused_at_once(
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
def test_what_a_worker_cannot_do_is_refused_at_once(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigurationError, match=match):
        Worker(NOWHERE, Echo().service, **settings)


@pytest.mark.parametrize("option", ["resend=1", "weight=4", "priority=2"])
def test_options_that_mean_nothing_to_a_worker_are_refused(option: str) -> None:
    for places in ((f"{NOWHERE}?{option}", ()), ((), f"{TCP}?{option}")):
        with pytest.raises(ConfigurationError, match="has no effect here"):
            Worker(places[0], Echo().service, bind=places[1])


def test_a_worker_takes_its_url_before_its_service() -> None:
    with pytest.raises(ConfigurationError, match="pass the URL before the services"):
        Worker(Echo().service, NOWHERE)  # type: ignore[arg-type]


def test_a_worker_over_sp_has_one_service() -> None:
    with pytest.raises(ConfigurationError, match="a worker has one"):
        Worker(NOWHERE, Echo().service, service("other")(Echo().serve))
    with pytest.raises(ConfigurationError, match="at least one service"):
        Worker(NOWHERE)
    with pytest.raises(ConfigurationError, match="does not forward requests"):
        Worker("mdp://localhost", Echo().service, hops=3)


def test_what_sp_cannot_carry_is_refused(on_loop: Run) -> None:
    async def scenario() -> None:
        async with AsyncClient(NOWHERE) as client:
            with pytest.raises(ConfigurationError, match="no partial replies"):
                client.stream(b"x")
            with pytest.raises(ConfigurationError, match="not carry idempotency keys"):
                await client.call(b"x", idempotency_key=b"k")
            with pytest.raises(ConfigurationError, match="has no service names"):
                await client.call(b"x", service="echo")
            with pytest.raises(ConfigurationError, match="2 frames, but SP carries only one"):
                await client.call([b"x", b"y"])

    on_loop(scenario())


def test_a_client_that_listens_is_opened_first(on_loop: Run) -> None:
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
