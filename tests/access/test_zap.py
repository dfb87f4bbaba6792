"""`Zap`: which replies admit a peer, where it asks, and what it says when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.spec.requirement import requirement
from tests.support.zap import Answer, ZapHandler, verdict

import requite
from requite.access import Authentication, AuthenticationUnavailable
from requite.errors import ConfigurationError, RemoteViolation
from requite.framing.base import CredentialsRefused
from requite.principal import Credential
from requite.zap import Zap

pytestmark = pytest.mark.interop

PEER = Authentication("ann", Credential("plain", ("ann",)), "tcp://192.0.2.7:9")


async def decision(zap: Zap) -> RemoteViolation | None:
    answered: asyncio.Future[RemoteViolation | None] = asyncio.get_running_loop().create_future()
    zap.ask(PEER, answered.set_result)
    async with asyncio.timeout(30):
        return await answered


async def reply_to(answer: Answer, timeout: float = 10.0) -> RemoteViolation | None:  # noqa: ASYNC109
    with ZapHandler(answer) as handler:
        zap = Zap(handler.url, timeout=timeout)
        try:
            return await decision(zap)
        finally:
            await zap.close()


async def test_200_admits() -> None:
    assert await reply_to(verdict("200", "OK", "somebody")) is None


async def test_400_refuses_with_the_text_of_the_handler() -> None:
    refusal = await reply_to(verdict("400", "locked\n"))
    assert isinstance(refusal, CredentialsRefused)
    assert str(refusal).endswith("refuses it (status 400): 'locked\\n'")


@requirement("zap:status")
@pytest.mark.parametrize("status", ["300", "500"])
async def test_300_and_500_are_no_decision(status: str) -> None:
    refusal = await reply_to(verdict(status, "busy"))
    assert isinstance(refusal, AuthenticationUnavailable)
    assert f"cannot decide (status {status}): 'busy'" in str(refusal)


@requirement("zap:request-id")
@pytest.mark.parametrize(
    "answer",
    [
        lambda request: [b"1.0", b"another", b"200", b"", b"", b""],
        lambda request: [b"2.0", request[1], b"200", b"", b"", b""],
        lambda request: [b"1.0", request[1], b"200"],
        lambda request: [b""],
        verdict("201"),
    ],
    ids=["id", "version", "short", "empty", "status"],
)
async def test_a_malformed_reply_admits_nobody(answer: Answer) -> None:
    refusal = await reply_to(answer)
    assert isinstance(refusal, AuthenticationUnavailable)
    assert "sent a malformed reply" in str(refusal)


async def test_a_reply_that_is_too_large_admits_nobody() -> None:
    refusal = await reply_to(
        lambda request: [b"1.0", request[1], b"200", b"", b"", bytes(1 << 20)], timeout=0.5
    )
    assert isinstance(refusal, AuthenticationUnavailable)


@pytest.fixture
async def nobody() -> AsyncIterator[str]:
    """An address at which connections are accepted, and nothing is said."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_without_a_handler_nobody_is_admitted(nobody: str) -> None:
    zap = Zap(nobody, timeout=0.5)
    refusal = await decision(zap)
    await zap.close()
    assert isinstance(refusal, AuthenticationUnavailable)
    assert f"the ZAP handler at {nobody} did not answer" in str(refusal)


async def test_a_lost_handler_is_asked_again_when_it_is_back(tmp_path: object) -> None:
    place = f"ipc://{tmp_path}/zap"
    zap = Zap(place)
    asking = asyncio.ensure_future(decision(zap))
    await asyncio.sleep(0)
    with ZapHandler(verdict("200"), place):
        assert await asking is None
    with ZapHandler(verdict("400"), place):
        assert isinstance(await decision(zap), CredentialsRefused)
    await zap.close()


async def test_a_handler_made_with_requite() -> None:
    """A Lazy Pirate's server is a REP socket, too."""

    @requite.service("zap")
    async def handle(request: requite.Request) -> list[bytes]:
        return [b"1.0", request.frames[1], b"200", b"", b"", b""]

    async with requite.Worker(handle, bind="pirate://127.0.0.1:0") as worker:
        zap = Zap(worker.addresses[0].replace("pirate", "tcp"))
        assert await decision(zap) is None
        await zap.close()


# --- settings -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:5",
        "mdp://127.0.0.1:5",
        "tcp://127.0.0.1",
        "ipc://relative",
        "tcp://127.0.0.1:5?nonsense=1",
        "tcp://127.0.0.1:5?protocol=simple",
    ],
)
def test_an_address_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Zap(url)


@pytest.mark.parametrize("url", ["tcp://192.0.2.1:5", "tcp://handler.example:5"])
def test_a_handler_of_another_machine_needs_encryption(url: str) -> None:
    with pytest.raises(ConfigurationError, match="could forge the answers"):
        Zap(url)
    assert Zap(url, insecure=True) is not None
    assert Zap(url.replace("tcp", "tls")) is not None


@requirement("zap:domain", "zap:strings")
@pytest.mark.parametrize("domain", ["", "x" * 256, "Käse"])
def test_a_domain_that_the_document_forbids_is_refused(domain: str) -> None:
    with pytest.raises(ConfigurationError, match="1 to 255 characters of ASCII"):
        Zap("tcp://127.0.0.1:5", domain=domain)


def test_limits_are_positive() -> None:
    with pytest.raises(ConfigurationError, match="must be positive"):
        Zap("tcp://127.0.0.1:5", timeout=0)
