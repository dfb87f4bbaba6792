"""SP over TLS and over WebSocket with TLS: clients, workers, devices, and refused certificates."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.sp import WAIT_S, Echo, Serving
from tests.support.certificates import Certificates, Shown
from tests.support.patience import failure, failure_on_loop

from requite.client import AsyncClient, Client
from requite.errors import CallTimeout, ConfigurationError
from requite.shell.aio import run
from requite.sp import Device
from requite.worker import Worker

pytestmark = pytest.mark.e2e

PLACES = {"tls": "sp+tls://127.0.0.1:0", "wss": "sp+wss://127.0.0.1:0/sp"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=PLACES)
def secure(request: pytest.FixtureRequest) -> str:
    """A URL to listen at over TLS."""
    return PLACES[request.param]


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def on_loop(request: pytest.FixtureRequest) -> Callable[..., None]:
    def on_loop(scenario: object) -> None:
        async def limited() -> None:
            async with asyncio.timeout(30):
                await scenario  # type: ignore[misc]

        # uvloop keeps descriptors of its first loop open.
        run(asyncio.sleep(0), use_uvloop=request.param)
        before = len(os.listdir("/proc/self/fd"))
        run(limited(), use_uvloop=request.param)
        assert len(os.listdir("/proc/self/fd")) == before

    return on_loop


@pytest.fixture
def serving() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.close()


def options_of(peer: Shown, ca: str = "") -> str:
    return f"?certificate={peer.certificate}&key={peer.key}" + (f"&ca={ca}" if ca else "")


@pytest.mark.parametrize("binds", ["worker", "client"])
def test_either_side_may_listen(
    on_loop: Callable[..., None], certificates: Certificates, secure: str, binds: str
) -> None:
    async def talk(client: AsyncClient) -> None:
        bodies = [b"x", bytes(1 << 20), *(b"%d" % n for n in range(50))]
        replies = await asyncio.gather(*map(client.call, bodies))
        assert [reply.body for reply in replies] == bodies

    async def scenario() -> None:
        bind = secure + options_of(certificates.server)
        if binds == "worker":
            async with Worker(Echo().service, bind=bind) as worker:
                url = f"{worker.addresses[0]}?ca={certificates.ca}"
                async with AsyncClient(url, timeout=20) as client:
                    await talk(client)
        else:
            async with AsyncClient(bind=bind, timeout=20) as client:
                url = f"{client.addresses[0]}?ca={certificates.ca}"
                async with Worker(url, Echo().service):
                    await talk(client)

    on_loop(scenario())


@pytest.mark.parametrize("binds", ["worker", "client"])
def test_either_side_of_the_blocking_client_may_listen(
    serving: Serving, certificates: Certificates, secure: str, binds: str
) -> None:
    bind = secure + options_of(certificates.server)
    trusting = f"?ca={certificates.ca}"
    if binds == "worker":
        client = Client(serving.start(Echo(), bind=bind)[0] + trusting, timeout=WAIT_S)
    else:
        client = Client(bind=bind, timeout=WAIT_S)
        serving.start(Echo(), client.addresses[0] + trusting)
    bodies = [b"x", bytes(1 << 20), *(b"%d" % n for n in range(50))]
    with client:
        assert [reply.body for reply in client.map(bodies)] == bodies


def test_a_device_forwards_from_tls_to_a_plain_transport(
    on_loop: Callable[..., None], certificates: Certificates, secure: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        front, back = secure + options_of(certificates.server), f"sp+ipc://{tmp_path}/back.sock"
        async with Device(front, back) as device, Worker(back, Echo().service):
            url = f"{device.front_addresses[0]}?ca={certificates.ca}"
            async with AsyncClient(url, timeout=20) as client:
                assert (await client.call(b"x")).body == b"x"

    on_loop(scenario())


def test_a_worker_may_require_client_certificates(
    on_loop: Callable[..., None], certificates: Certificates
) -> None:
    async def scenario() -> None:
        bind = PLACES["tls"] + options_of(certificates.server, ca=certificates.ca)
        async with Worker(Echo().service, bind=bind) as worker:
            [url] = worker.addresses
            known = url + options_of(certificates.client, ca=certificates.ca)
            async with AsyncClient(known, timeout=20) as client:
                assert (await client.call(b"x")).body == b"x"
            async with AsyncClient(f"{url}?ca={certificates.ca}") as client:
                with pytest.raises(CallTimeout) as caught:
                    await client.call(b"x", timeout=0.3)
                assert caught.value.attempts == 0

    on_loop(scenario())


@pytest.mark.parametrize(
    ("peer", "match"),
    [("stranger", "certificate"), ("elsewhere", "certificate"), ("expired", "expired")],
)
def test_a_wrong_certificate_is_reported(
    on_loop: Callable[..., None], certificates: Certificates, secure: str, peer: str, match: str
) -> None:
    async def scenario() -> None:
        bind = secure + options_of(getattr(certificates, peer))
        async with Worker(Echo().service, bind=bind) as worker:
            url = f"{worker.addresses[0]}?ca={certificates.ca}"
            async with AsyncClient(url) as client:
                error = await failure_on_loop(
                    CallTimeout, match, lambda timeout: client.call(b"x", timeout=timeout)
                )
                assert not error.may_have_executed

    on_loop(scenario())


def test_the_blocking_client_reports_a_wrong_certificate(
    serving: Serving, certificates: Certificates
) -> None:
    [url] = serving.start(Echo(), bind=PLACES["tls"] + options_of(certificates.stranger))
    with Client(f"{url}?ca={certificates.ca}") as client:
        failure(CallTimeout, "certificate", lambda timeout: client.call(b"x", timeout=timeout))


def test_a_peer_without_tls_is_reported(serving: Serving, certificates: Certificates) -> None:
    [url] = serving.start(Echo(), bind="sp+tcp://127.0.0.1:0")
    with Client(f"{url.replace('tcp', 'tls')}?ca={certificates.ca}") as client:
        failure(CallTimeout, "TLS", lambda timeout: client.call(b"x", timeout=timeout))


@pytest.mark.parametrize("make", [AsyncClient, Client])
def test_unusable_certificate_files_are_refused(
    certificates: Certificates, tmp_path: Path, make: type[Client]
) -> None:
    with pytest.raises(ConfigurationError, match=r"ca .*no-such-file"):
        make(f"sp+tls://localhost:1?ca={tmp_path}/no-such-file")
    crossed = f"?certificate={certificates.server.certificate}&key={certificates.client.key}"
    with pytest.raises(ConfigurationError, match="key"):
        make(bind=PLACES["tls"] + crossed)
    with pytest.raises(ConfigurationError, match="certificate=FILE"):
        make(bind=PLACES["tls"])
