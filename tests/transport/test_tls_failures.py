"""Failures of TLS, with and without an event loop: the errors at both ends, and no leaks."""

from __future__ import annotations

import asyncio
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.transport_suite import Tap
from tests.support.certificates import Certificates
from tests.support.descriptors import none_left
from tests.support.hand_poll import HandPoll, Owner

from requite.errors import ConfigurationError, TransportError
from requite.transport.address import TcpAddress, TlsAddress, WsAddress
from requite.transport.aio import dial, listen
from requite.transport.blocking import Attempt, BlockingListener
from requite.transport.tls import TlsSettings


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def nothing_left_open(certificates: Certificates) -> Iterator[None]:
    asyncio.run(asyncio.sleep(0))  # the first loop opens descriptors that stay open
    with none_left():
        yield


@dataclass(frozen=True)
class Case:
    """Settings of both ends, and the expected errors at the dialling and the listening end."""

    listens: Callable[[Certificates], TlsSettings]
    dials: Callable[[Certificates], TlsSettings]
    dialled: str
    accepted: str


NOT_VALID = "the peer's certificate is not valid: "
UNKNOWN_CA = (
    NOT_VALID + "unable to get local issuer certificate; set `ca` to the file with the certificate"
)
CASES = {
    "unknown authority": Case(
        lambda files: files.to_listen,
        lambda files: TlsSettings(ca=files.other_ca),
        UNKNOWN_CA,
        "the peer refused TLS: unknown ca",
    ),
    "not of this system": Case(
        lambda files: files.to_listen,
        lambda _files: TlsSettings(),
        UNKNOWN_CA,
        "the peer refused TLS: unknown ca",
    ),
    "expired": Case(
        lambda files: files.showing(files.expired),
        lambda files: files.to_dial,
        NOT_VALID + "certificate has expired",
        "the peer refused TLS: certificate expired",
    ),
    "clock before its begin": Case(
        lambda files: files.showing(files.early),
        lambda files: files.to_dial,
        NOT_VALID + "certificate is not yet valid",
        "the peer refused TLS: bad certificate",
    ),
    "self-signed": Case(
        lambda files: files.showing(files.self_signed),
        lambda files: files.to_dial,
        NOT_VALID + "self-signed certificate; set `ca` to the file with the certificate",
        "the peer refused TLS: unknown ca",
    ),
    "for another host": Case(
        lambda files: files.showing(files.elsewhere),
        lambda files: files.to_dial,
        NOT_VALID + "IP address mismatch, certificate is not valid for '127.0.0.1'",
        "the peer refused TLS: bad certificate",
    ),
    "for another name": Case(
        lambda files: files.to_listen,
        lambda files: replace(files.to_dial, server_name="elsewhere.example"),
        NOT_VALID + "Hostname mismatch, certificate is not valid for 'elsewhere.example'",
        "the peer refused TLS: bad certificate",
    ),
}


# --- with an event loop ---------------------------------------------------------------------------
class RecordingListener:
    """A listener on an event loop. Records its connections."""

    def __init__(self) -> None:
        self.taps: list[Tap] = []
        self._came = asyncio.Event()

    async def at(self, tls: TlsSettings | None, host: str = "127.0.0.1") -> Any:
        address = TcpAddress(host, 0) if tls is None else TlsAddress(host, 0)
        self.listener = await listen(address, self._take, tls)
        return self.listener.address

    def _take(self, stream: Any) -> None:
        self.taps.append(Tap(stream))
        self._came.set()

    async def first(self) -> Tap:
        async with asyncio.timeout(20):
            await self._came.wait()
        return self.taps[0]


async def dialled(address: Any, tls: TlsSettings) -> Tap:
    taps: list[Tap] = []
    await dial(address, lambda stream: taps.append(Tap(stream)), tls=tls)
    return taps[0]


@pytest.mark.parametrize("case", CASES)
def test_an_invalid_certificate_is_refused(certificates: Certificates, case: str) -> None:
    how = CASES[case]

    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(how.listens(certificates))
        with pytest.raises(TransportError) as caught:
            await dialled(address, how.dials(certificates))
        assert f"cannot connect to {address}: {how.dialled}" in str(caught.value)
        assert caught.value.may_have_executed is False
        served = await listening.first()
        await served.until_closed()
        assert served.reasons == [how.accepted]
        listening.listener.close()

    asyncio.run(scenario())


def test_server_name_overrides_the_expected_name(certificates: Certificates) -> None:
    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(certificates.showing(certificates.elsewhere))
        tap = await dialled(address, replace(certificates.to_dial, server_name="elsewhere.example"))
        assert not tap.reasons  # the connection is open
        tap.stream.abort()
        await tap.until_closed()
        await (await listening.first()).until_closed()
        listening.listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("who", "at_server", "at_client"),
    [
        (None, "TLS failed: peer did not return a certificate", "certificate required"),
        ("stranger", "the peer's certificate is not valid: ", "unknown ca"),
        ("expired", "the peer's certificate is not valid: certificate has expired", "expired"),
        ("early", "the peer's certificate is not valid: certificate is not yet valid", "bad cert"),
        (
            "self_signed",
            "the peer's certificate is not valid: self-signed certificate",
            "unknown ca",
        ),
    ],
)
def test_a_client_without_a_valid_certificate_is_refused(
    certificates: Certificates, who: str | None, at_server: str, at_client: str
) -> None:
    """In TLS 1.3 the client has finished its handshake before it learns of the rejection."""
    checking = replace(certificates.to_listen, ca=certificates.ca, verify_client=True)
    settings = certificates.to_dial
    if who is not None:
        shown = getattr(certificates, who)
        settings = replace(settings, certificate=shown.certificate, key=shown.key)

    async def scenario() -> None:
        listening = RecordingListener()
        tap = await dialled(await listening.at(checking), settings)
        tap.write(b"let me in")
        await tap.until_closed()
        assert tap.reasons[0].startswith("the peer refused TLS: ")
        assert at_client in tap.reasons[0]
        served = await listening.first()
        await served.until_closed()
        assert served.reasons[0].startswith(at_server)
        assert not served.data
        listening.listener.close()

    asyncio.run(scenario())


def test_a_client_with_a_valid_certificate_is_accepted(certificates: Certificates) -> None:
    checking = replace(certificates.to_listen, ca=certificates.ca, verify_client=True)
    shown = certificates.client
    settings = replace(certificates.to_dial, certificate=shown.certificate, key=shown.key)

    async def scenario() -> None:
        listening = RecordingListener()
        tap = await dialled(await listening.at(checking), settings)
        tap.write(b"hello")
        served = await listening.first()
        await served.until_size(5)
        tap.call(tap.stream.close)
        await served.until_closed()
        await tap.until_closed()
        assert tap.reasons == served.reasons == [""]
        listening.listener.close()

    asyncio.run(scenario())


def test_a_plain_listener_that_speaks_first(certificates: Certificates) -> None:
    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(None)
        secure = TlsAddress(address.host, address.port)
        dialling = asyncio.create_task(dialled(secure, certificates.to_dial))
        served = await listening.first()
        served.write(bytes.fromhex("0053500000310000"))
        with pytest.raises(TransportError, match="the peer does not speak TLS"):
            await dialling
        await served.until_closed()
        assert served.data[:1] == b"\x16"  # a TLS record, which the framing refuses
        listening.listener.close()

    asyncio.run(scenario())


def test_a_plain_listener_that_closes(certificates: Certificates) -> None:
    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(None)
        secure = WsAddress(address.host, address.port, secure=True)
        dialling = asyncio.create_task(dialled(secure, certificates.to_dial))
        (await listening.first()).stream.abort()
        with pytest.raises(
            TransportError, match=f"{secure}: the connection ended during the TLS handshake"
        ):
            await dialling
        await listening.taps[0].until_closed()
        listening.listener.close()

    asyncio.run(scenario())


def test_a_silent_plain_listener(certificates: Certificates) -> None:
    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(None)
        secure = TlsAddress(address.host, address.port)
        with pytest.raises(TransportError, match=r"no answer within 0\.05 s"):
            await dial(secure, lambda _stream: None, 0.05, certificates.to_dial)
        served = await listening.first()
        await served.until_closed()
        listening.listener.close()

    asyncio.run(scenario())


def test_a_plain_peer_at_a_tls_listener(certificates: Certificates) -> None:
    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(certificates.to_listen)
        reader, writer = await asyncio.open_connection(address.host, address.port)
        served = await listening.first()
        served.write(b"in vain")
        writer.write(bytes.fromhex("0053500000300000"))
        async with asyncio.timeout(20):
            alert = await reader.read()
        assert alert == bytes.fromhex("15030300 02 020a")  # fatal, unexpected_message
        await served.until_closed()
        assert served.reasons == ["the peer does not speak TLS"]
        writer.close()
        listening.listener.close()

    asyncio.run(scenario())


def test_an_old_version_is_refused(certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=certificates.ca)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(certificates.to_listen)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(address.host, address.port, ssl=context)
        served = await listening.first()
        await served.until_closed()
        assert served.reasons == ["TLS failed: unsupported protocol"]
        listening.listener.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_foreign_peer_connects_and_disconnects(certificates: Certificates, end: str) -> None:
    """asyncio's own TLS waits for an answer to its close."""
    context = ssl.create_default_context(cafile=certificates.ca)

    async def scenario() -> None:
        listening = RecordingListener()
        address = await listening.at(certificates.to_listen)
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        writer.write(b"question" * 10_000)
        served = await listening.first()
        await served.until_size(80_000)
        served.write(b"answer")
        async with asyncio.timeout(20):
            assert await reader.readexactly(6) == b"answer"
            if end == "close":
                writer.close()
                await writer.wait_closed()
            else:
                writer.transport.abort()
            await served.until_closed()
        expected = (
            ""
            if end == "close"
            else "the peer closed the connection without TLS close_notify; data may be missing"
        )
        assert served.reasons == [expected]
        listening.listener.close()

    asyncio.run(scenario())


def test_a_foreign_server_can_be_dialled(certificates: Certificates) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        tap = await dialled(TlsAddress("localhost", port), certificates.to_dial)
        tap.write(b"hello" * 10_000)
        await tap.until_size(50_000)
        assert tap.data == b"hello" * 10_000
        async with asyncio.timeout(20):
            tap.call(tap.stream.close)
            await tap.until_closed()
            server.close()
            await server.wait_closed()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                await task

    asyncio.run(scenario())


def test_the_dialling_end_reports_missing_files(certificates: Certificates, tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.pem")
    with pytest.raises(TransportError, match=f"cannot use the ca '{missing}'"):
        asyncio.run(dialled(TlsAddress("127.0.0.1", 1), TlsSettings(ca=missing)))


def test_a_listener_needs_a_certificate(tmp_path: Path) -> None:
    missing = TlsSettings(certificate=str(tmp_path / "c.pem"), key="k.pem")
    for settings, why in (
        (None, "a listener requires a certificate and its key"),
        (missing, "cannot use the certificate"),
    ):
        for address in (TlsAddress("127.0.0.1", 0), WsAddress("127.0.0.1", 0, secure=True)):
            with pytest.raises(ConfigurationError, match=why):
                asyncio.run(listen(address, lambda _stream: None, settings))
            with pytest.raises(ConfigurationError, match=why):
                BlockingListener(address, HandPoll(), lambda _stream: None, settings)


# --- without an event loop ------------------------------------------------------------------------
class BlockingPair:
    """A listener and its dialling peers without an event loop, in one poll."""

    def __init__(self, poll: HandPoll, listens: TlsSettings | None) -> None:
        self.poll = poll
        self.owners: list[Owner] = []
        self.errors: list[str] = []
        kind = TcpAddress if listens is None else TlsAddress
        self.listener = BlockingListener(kind("127.0.0.1", 0), poll, self._take, listens)

    def dial(self, settings: TlsSettings) -> Attempt:
        address = TlsAddress("127.0.0.1", self.listener.address.port)  # type: ignore[union-attr]
        return Attempt(
            address,
            self.poll,
            lambda _address, stream: stream.abort(),
            lambda _address, error: self.errors.append(str(error)),
            settings,
        )

    def _take(self, stream: Any) -> None:
        self.owners.append(Owner())
        stream.start(self.owners[-1], "link")

    def close(self) -> None:
        self.listener.close()
        assert not self.poll.watched


@pytest.mark.parametrize("case", CASES)
def test_an_invalid_certificate_is_refused_without_a_loop(
    certificates: Certificates, case: str
) -> None:
    how = CASES[case]
    poll = HandPoll()
    served = BlockingPair(poll, how.listens(certificates))
    served.dial(how.dials(certificates))
    poll.turns(lambda: served.errors and served.owners and served.owners[0].events)
    assert f"{served.listener.address}: {how.dialled}" in served.errors[0]
    assert served.owners[0].events == ["closed"]
    assert served.owners[0].reason == how.accepted
    served.close()


def test_a_dial_of_a_silent_listener_times_out_without_a_loop(certificates: Certificates) -> None:
    poll = HandPoll()
    served = BlockingPair(poll, None)
    attempt = served.dial(certificates.to_dial)
    poll.turns(lambda: served.owners and served.owners[0].data)  # in the middle of the handshake
    attempt.give_up("no answer within 10 s")
    attempt.give_up("again")
    poll.turns(lambda: served.owners[0].events)
    assert [error.partition(": ")[2] for error in served.errors] == ["no answer within 10 s"]
    served.close()


def test_a_handshake_may_be_discarded(certificates: Certificates) -> None:
    """As after a fork: close the descriptors without reporting anything to the peer."""
    poll = HandPoll()
    served = BlockingPair(poll, None)
    attempt = served.dial(certificates.to_dial)
    poll.turns(lambda: served.owners and served.owners[0].data)
    attempt.discard()
    for pollable, _ in list(poll.watched.values()):
        pollable.discard()
    poll.settle()
    assert not served.errors
    assert not served.owners[0].events


def test_a_peer_that_closes_in_the_handshake_without_a_loop(certificates: Certificates) -> None:
    poll = HandPoll()
    served = BlockingPair(poll, certificates.to_listen)
    port = served.listener.address.port  # type: ignore[union-attr]
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"\x16\x03\x01")
        poll.turns(lambda: served.owners)
    poll.turns(lambda: served.owners[0].events)
    assert served.owners[0].reason == "the connection ended during the TLS handshake"
    served.close()


def test_missing_files_without_a_loop(tmp_path: Path) -> None:
    poll = HandPoll()
    served = BlockingPair(poll, None)
    served.dial(TlsSettings(ca=str(tmp_path / "ca.pem")))
    poll.settle()
    assert "cannot use the ca" in served.errors[0]
    served.close()
