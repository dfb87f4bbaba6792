"""What strangers send to a broker with TLS, and what clients learn: both sides know the reason."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Certificates, Shown
from tests.support.live import eventually
from tests.support.patience import failure_on_loop
from tests.support.tls13 import context_with_log, writer_from

import requite
from requite.errors import CallTimeout

pytestmark = pytest.mark.e2e

SECURE = "tls://127.0.0.1:0"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("files"))


@pytest.fixture
def logged(caplog: Any) -> Callable[[str], Any]:
    """A function that waits for a line of the broker's log."""
    caplog.set_level(logging.WARNING)
    return lambda text: asyncio.to_thread(
        eventually, lambda: text in caplog.text, f"{text!r} in the log"
    )


def mutual(certificates: Certificates, shown: Shown | None = None) -> requite.Broker:
    """Return a broker that verifies its clients."""
    shown = shown or certificates.server
    files = f"certificate={shown.certificate}&key={shown.key}"
    return requite.Broker(f"{SECURE}?{files}&ca={certificates.ca}")


def port_of(broker: requite.Broker) -> int:
    return int(broker.endpoints[0].rpartition(":")[2])


def url_of(broker: requite.Broker, certificates: Certificates, shown: Shown | None) -> str:
    """Return a client's URL, which asks for a service of the broker itself."""
    url = f"mdp+tls://127.0.0.1:{port_of(broker)}/mmi.service?ca={certificates.ca}"
    own = shown and f"&certificate={shown.certificate}&certificate_key={shown.key}"
    return f"{url}{own or ''}"


async def is_served(broker: requite.Broker, certificates: Certificates) -> None:
    """Call the broker with a valid certificate."""
    url = url_of(broker, certificates, certificates.client)
    async with requite.AsyncClient(url, timeout=20) as client:
        assert (await client.call(b"nobody")).body


async def failed(url: str, words: str) -> None:
    """Make a call that cannot be sent; its error must have these words."""
    async with requite.AsyncClient(url) as client:
        error = await failure_on_loop(
            CallTimeout, words, lambda timeout: client.call(b"x", timeout=timeout)
        )
        assert error.may_have_executed is False
        assert error.attempts == 0


# --- certificates ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("who", "at_broker", "at_client"),
    [
        ("", "peer did not return a certificate", "refused TLS: certificate required"),
        ("stranger", "the peer's certificate is not valid", "refused TLS: unknown ca"),
        ("self_signed", "certificate is not valid: self-signed", "refused TLS: unknown ca"),
        ("expired", "certificate has expired", "refused TLS: certificate expired"),
        ("early", "certificate is not yet valid", "refused TLS: bad certificate"),
    ],
)
async def test_clients(
    certificates: Certificates, logged: Any, who: str, at_broker: str, at_client: str
) -> None:
    async with mutual(certificates) as broker:
        shown = getattr(certificates, who) if who else None
        await failed(url_of(broker, certificates, shown), at_client)
        await logged("handshake failed: tls://127.0.0.1:")
        await logged(at_broker)
        await is_served(broker, certificates)


@pytest.mark.parametrize(
    ("who", "at_client"),
    [
        ("stranger", "unable to get local issuer certificate; set `ca` to the file"),
        ("self_signed", "self-signed certificate; set `ca` to the file"),
        ("expired", "certificate has expired"),
        ("early", "certificate is not yet valid"),
        ("elsewhere", "certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_brokers(certificates: Certificates, logged: Any, who: str, at_client: str) -> None:
    async with mutual(certificates, getattr(certificates, who)) as broker:
        await failed(url_of(broker, certificates, certificates.client), at_client)
        await logged("the peer refused TLS: ")


async def test_a_worker_without_a_certificate_learns_why(certificates: Certificates) -> None:
    async with mutual(certificates) as broker:
        url = url_of(broker, certificates, None).replace("/mmi.service", "")
        async with requite.Worker(url, requite.service("echo")(bytes)) as worker:
            await asyncio.to_thread(
                eventually, lambda: "certificate required" in worker.trouble, "the trouble"
            )


# --- one side without TLS -------------------------------------------------------------------------
async def test_a_plain_client_at_a_port_of_tls(certificates: Certificates, logged: Any) -> None:
    async with mutual(certificates) as broker:
        await failed(f"mdp://127.0.0.1:{port_of(broker)}/echo", r"those of TLS \(use mdp\+tls://")
        await logged("the peer does not speak TLS")
        await is_served(broker, certificates)


async def test_a_client_of_tls_at_a_plain_port(certificates: Certificates, logged: Any) -> None:
    async with requite.Broker("tcp://127.0.0.1:0") as broker:
        await failed(url_of(broker, certificates, None), "the peer does not speak TLS")
        await logged("those of TLS (use mdp+tls://")


# --- handshakes -----------------------------------------------------------------------------------
async def test_a_handshake_cut_at_any_length(certificates: Certificates) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=certificates.ca)
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()

    def cut_all() -> None:
        for end in range(0, len(hello) + 1, 10):
            with socket.create_connection(("127.0.0.1", port_of(broker)), 20) as peer:
                peer.sendall(hello[:end])

    async with mutual(certificates) as broker:
        await asyncio.to_thread(cut_all)
        await is_served(broker, certificates)
        links = broker._shell.host.links
        await asyncio.to_thread(eventually, lambda: not links, "all connections are closed")


async def test_a_flood_of_key_updates(
    certificates: Certificates, logged: Any, tmp_path: Path
) -> None:
    shown = certificates.client
    settings = replace(certificates.to_dial, certificate=shown.certificate, key=shown.key)
    context = context_with_log(settings, tmp_path / "log")
    context.load_cert_chain(shown.certificate, shown.key)

    def flood() -> None:
        """Do the handshake, and go on by hand until the broker ends the connection."""
        with socket.create_connection(("127.0.0.1", port_of(broker)), 20) as sock:
            peer = context.wrap_socket(
                sock, server_hostname="localhost", do_handshake_on_connect=False
            )
            peer.do_handshake()
            writer = writer_from(tmp_path / "log")
            raw = socket.socket(fileno=peer.detach())
            with raw:
                raw.settimeout(20)
                while True:
                    raw.sendall(b"".join(writer.key_update(True) for _ in range(500)))

    async with mutual(certificates) as broker:
        with pytest.raises((ConnectionError, BrokenPipeError)):
            await asyncio.to_thread(flood)
        await logged("bytes of TLS messages without data")
        await is_served(broker, certificates)
