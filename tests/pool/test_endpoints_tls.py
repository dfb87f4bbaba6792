"""The HTTP endpoints over TLS: whom they admit, who reaches them, and what silent peers can do."""

from __future__ import annotations

import asyncio
import os
import ssl
from itertools import count
from pathlib import Path
from typing import Final

import pytest
from tests.pool.http_bench import (
    CLOSE,
    HOST,
    JSON,
    REQUIRE,
    Manager,
    command,
    end_of,
    endpoints_of,
    opened,
    token_file,
)
from tests.pool.live import until
from tests.pool.tls_bench import (
    READY,
    at,
    connected,
    exchange,
    ready,
    showing,
    trusting,
)
from tests.support.certificates import Certificates, Shown

from requite.cli.pool.client import Manager as Where
from requite.cli.pool.client import ask
from requite.errors import ConfigurationError, TransportError
from requite.pool.inputs import RequireGroup, ScaleGroup
from requite.pool.manager.endpoints import Endpoints
from requite.transport import tls_listener


# --- the certificate of the manager ---------------------------------------------------------------
async def test_a_request_over_tls_is_answered(certificates: Certificates) -> None:
    manager = showing(certificates.server)
    async with opened(endpoints_of(manager)) as endpoints:
        assert endpoints.url.startswith("https://127.0.0.1:")
        where = at(endpoints, ca=certificates.ca)
        assert await ready(where) == READY
        assert await asyncio.to_thread(ask, where, "/require", {"key": "a"}) == {"accepted": True}
    assert manager.fed == [RequireGroup("a")]


NOT_VALID: Final = "the peer's certificate is not valid: "


@pytest.mark.parametrize(
    ("shown", "complaint"),
    [
        ("expired", NOT_VALID + "certificate has expired"),
        ("early", NOT_VALID + "certificate is not yet valid"),
        ("stranger", NOT_VALID + "unable to get local issuer certificate; set `ca` to the file"),
        ("self_signed", NOT_VALID + "self-signed certificate; set `ca` to the file"),
        ("elsewhere", NOT_VALID + "IP address mismatch, certificate is not valid for '127.0.0.1'"),
    ],
)
async def test_the_command_refuses_an_invalid_certificate(
    certificates: Certificates, shown: str, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = showing(getattr(certificates, shown))
    async with opened(endpoints_of(manager)) as endpoints:
        where = at(endpoints, ca=certificates.ca)
        with pytest.raises(TransportError) as caught:
            await asyncio.to_thread(ask, where, "/require", {"key": "a"})
        await until(lambda: "the peer refused TLS: " in caplog.text, "the reason in the log")
    assert f"no pool manager answers at {where.manager}: {complaint}" in str(caught.value)
    assert not manager.fed
    assert "handshake failed: tls://127.0.0.1:" in caplog.text


async def test_without_a_ca_those_of_the_system_are_trusted(certificates: Certificates) -> None:
    async with opened(endpoints_of(showing(certificates.server))) as endpoints:
        with pytest.raises(TransportError, match="set `ca` to the file"):
            await ready(Where(endpoints.url))


async def test_server_name_is_the_name_in_the_certificate(certificates: Certificates) -> None:
    async with opened(endpoints_of(showing(certificates.elsewhere))) as endpoints:
        where = at(endpoints, ca=certificates.ca, server_name="elsewhere.example")
        assert await ready(where) == READY


@pytest.mark.parametrize("setting", ["certificate", "key", "ca"])
async def test_a_file_that_cannot_be_used_is_named_at_the_start(
    certificates: Certificates, tmp_path: Path, setting: str
) -> None:
    missing = str(tmp_path / "missing.pem")
    shown = certificates.server
    files = {"certificate": shown.certificate, "key": shown.key, "ca": certificates.ca}
    endpoints = endpoints_of(Manager(**{**files, setting: missing}))
    with pytest.raises(ConfigurationError, match=f"cannot use the {setting} '{missing}'"):
        await endpoints.open()
    assert not endpoints.url


# --- the certificates of clients ------------------------------------------------------------------
async def test_with_a_ca_clients_show_their_certificate(certificates: Certificates) -> None:
    async with opened(endpoints_of(showing(certificates.server, ca=certificates.ca))) as endpoints:
        shown = certificates.client
        where = at(endpoints, ca=certificates.ca, certificate=shown.certificate, key=shown.key)
        assert await ready(where) == READY


@pytest.mark.parametrize(
    ("who", "complaint"),
    [
        (None, "TLS failed: peer did not return a certificate"),
        ("stranger", "the peer's certificate is not valid: unable to get local issuer"),
        ("expired", "the peer's certificate is not valid: certificate has expired"),
        ("early", "the peer's certificate is not valid: certificate is not yet valid"),
        ("self_signed", "the peer's certificate is not valid: self-signed certificate"),
    ],
)
async def test_with_a_ca_other_clients_are_refused(
    certificates: Certificates, who: str | None, complaint: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = showing(certificates.server, ca=certificates.ca)
    options = {"ca": certificates.ca}
    if who is not None:
        shown = getattr(certificates, who)
        options |= {"certificate": shown.certificate, "key": shown.key}
    async with opened(endpoints_of(manager)) as endpoints:
        with pytest.raises(TransportError, match="no pool manager answers at https://"):
            await asyncio.to_thread(ask, at(endpoints, **options), "/require", {"key": "a"})
        await until(lambda: complaint in caplog.text, "the reason in the log")
    assert not manager.fed


# --- other protocols ------------------------------------------------------------------------------
async def test_an_older_version_of_tls_is_refused(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    context = trusting(certificates)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with opened(endpoints_of(showing(certificates.server))) as endpoints:
        with pytest.raises(ssl.SSLError, match=r"(?i)alert.protocol.version"):
            async with connected(endpoints, context):
                pytest.fail("it was admitted")
        await until(lambda: "unsupported protocol" in caplog.text, "the reason in the log")


async def test_plain_http_at_the_port_of_tls_is_closed(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    manager = showing(certificates.server)
    async with opened(endpoints_of(manager)) as endpoints:
        async with connected(endpoints) as connection:
            connection[1].write(f"POST /require HTTP/1.1\r\n{HOST}\r\n{JSON}\r\n\r\n".encode())
            assert b"HTTP" not in await end_of(connection)
        with pytest.raises(TransportError, match="for a manager with TLS use https://"):
            await ready(Where(endpoints.url.replace("https:", "http:")))
        await until(lambda: "does not speak TLS" in caplog.text, "the reason in the log")
    assert not manager.fed


async def test_tls_at_the_port_of_plain_http_is_closed(certificates: Certificates) -> None:
    async with opened(endpoints_of(Manager())) as endpoints:
        where = Where(f"{endpoints.url.replace('http:', 'https:')}?ca={certificates.ca}")
        with pytest.raises(TransportError, match="no pool manager answers at https://"):
            await ready(where)
        assert await ready(Where(endpoints.url)) == READY


async def test_over_tls_hosts_and_the_token_are_checked_as_well(
    certificates: Certificates, tmp_path: Path
) -> None:
    manager = showing(certificates.server, token_file=token_file(tmp_path))
    async with opened(endpoints_of(manager)) as endpoints:
        size = f"Content-Length: {len(REQUIRE)}"
        for host, status in (("Host: evil.example", 421), (HOST, 401)):
            head = "\r\n".join(("POST /require HTTP/1.1", host, JSON, size, CLOSE, "", ""))
            async with connected(endpoints, trusting(certificates)) as connection:
                assert await exchange(connection, head.encode() + REQUIRE) == status
    assert not manager.fed


# --- rotation -------------------------------------------------------------------------------------
class Rotation:
    """The files of an endpoint, which change while requests are made.

    `served` counts requests: over one connection all the time, and over new ones.
    """

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.served = 0
        self.certificate, self.key, self.ca = (
            folder / name for name in ("server.pem", "server.key", "ca.pem")
        )
        self._numbers = count()
        self._certificates = certificates
        self.show(certificates.server)
        self.trust(certificates.ca)
        self.over = False

    def put(self, path: Path, content: bytes) -> None:
        """Replace a file by renaming."""
        new = path.with_suffix(f".{next(self._numbers)}")
        new.write_bytes(content)
        os.replace(new, path)

    def show(self, shown: Shown) -> None:
        """Replace the certificate, and then its key."""
        self.put(self.certificate, Path(shown.certificate).read_bytes())
        self.put(self.key, Path(shown.key).read_bytes())

    def trust(self, *authorities: str) -> None:
        """Replace the authorities of clients."""
        self.put(self.ca, b"".join(Path(each).read_bytes() for each in authorities))

    def where(self, endpoints: Endpoints) -> Where:
        shown = self._certificates.client
        return at(
            endpoints,
            ca=self._certificates.ca,
            certificate=shown.certificate,
            key=shown.key,
        )

    def context(self) -> ssl.SSLContext:
        context = trusting(self._certificates)
        shown = self._certificates.client
        context.load_cert_chain(shown.certificate, shown.key)
        return context

    async def load(self, endpoints: Endpoints) -> None:
        """Make requests until `over`; the first failure ends it."""
        async with connected(endpoints, self.context()) as kept:
            while not self.over:
                assert await exchange(kept) == 200
                assert await ready(self.where(endpoints)) == READY
                self.served += 2

    async def shown(self, endpoints: Endpoints) -> bytes:
        """Return the certificate that a new connection gets."""
        async with connected(endpoints, self.context()) as (_, writer):
            found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            return found


def der_of(shown: Shown) -> bytes:
    """Return a certificate in DER."""
    text = Path(shown.certificate).read_text()
    end = "-----END CERTIFICATE-----\n"
    return ssl.PEM_cert_to_DER_cert(text[: text.index(end) + len(end)])


async def test_certificates_change_under_load_without_a_failed_request(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "CHECK_EVERY_S", 0.0)
    files = Rotation(certificates, tmp_path)
    manager = Manager(certificate=str(files.certificate), key=str(files.key), ca=str(files.ca))
    async with opened(endpoints_of(manager)) as endpoints, asyncio.TaskGroup() as loads:
        for _ in range(3):
            loads.create_task(files.load(endpoints))

        async def some_requests() -> None:
            wanted = files.served + 30
            await until(lambda: files.served >= wanted, "30 requests")

        await some_requests()
        for number in range(3):
            issued = certificates.issue(f"renewed-{number}", "localhost", "127.0.0.1")
            files.show(issued)
            await some_requests()
            assert await files.shown(endpoints) == der_of(issued)
        files.put(files.certificate, b"not a certificate")
        await some_requests()
        assert await files.shown(endpoints) == der_of(issued)
        files.show(issued)
        files.trust(certificates.ca, certificates.other_ca)
        await some_requests()
        stranger = certificates.stranger
        where = at(
            endpoints, ca=certificates.ca, certificate=stranger.certificate, key=stranger.key
        )
        assert await ready(where) == READY  # its authority is trusted now
        files.over = True
    assert files.served >= 150


# --- the command ----------------------------------------------------------------------------------
@pytest.mark.e2e
async def test_the_command_uses_tls_and_the_token(
    certificates: Certificates, tmp_path: Path
) -> None:
    token = token_file(tmp_path)
    manager = showing(certificates.server, ca=certificates.ca, token_file=token)
    shown = certificates.client
    async with opened(endpoints_of(manager)) as endpoints:
        where = at(
            endpoints, ca=certificates.ca, certificate=shown.certificate, key=shown.key
        ).manager
        scale = ("scale", "a", "2", "--manager", where)
        assert await command(*scale, "--token-file", token) == (0, "")
        assert manager.fed == [ScaleGroup("a", 2)]
        code, said = await command(*scale)
        assert (code, "requires its token" in said) == (2, True)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("https://localhost:1?colour=1", "unknown option 'colour'"),
        ("https://localhost:1?certificate_key=k", "the option 'key' here"),
        ("https://localhost:1?ca=missing.pem", "cannot use the ca 'missing.pem'"),
        ("https://localhost:1?key=k.pem", "`key` requires `certificate`"),
        ("http://localhost:1?ca=ca.pem", "options are for https:// only"),
        ("tls://localhost:1", "is not an http:// or https:// URL"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        ask(Where(url), "/ready")


@pytest.mark.e2e
async def test_a_manager_does_not_start_without_its_certificate(tmp_path: Path) -> None:
    file = tmp_path / "pool.toml"
    missing = tmp_path / "missing.pem"
    file.write_text(
        "[pool]\nname = 'core'\n[driver]\nkind = 'noop'\n"
        f"[http]\nport = 0\ncertificate = '{missing}'\n"
    )
    code, said = await command("run", "--config", str(file))
    assert (code, f"cannot use the certificate '{missing}'" in said) == (2, True)
    code, said = await command(
        "run", "--config", str(file), "--set", "http.host=0.0.0.0", "--set", "http.certificate="
    )
    assert (code, "set http.token_file, or http.ca" in said) == (2, True)
    assert "Traceback" not in said
