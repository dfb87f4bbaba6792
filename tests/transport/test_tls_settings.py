"""TLS settings: the contexts they create, and invalid files or combinations."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from tests.support.certificates import Certificates

from requite.errors import ConfigurationError
from requite.transport.tls import TlsSettings


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def test_the_dialling_end_checks_certificate_and_name(certificates: Certificates) -> None:
    for settings in (TlsSettings(), certificates.to_dial):
        context = settings.dialling_context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def test_a_listener_refuses_old_tls_and_checks_clients_on_request(
    certificates: Certificates,
) -> None:
    context = certificates.to_listen.listening_context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_NONE
    settings = replace(certificates.to_listen, ca=certificates.ca, verify_client=True)
    context = settings.listening_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(context.get_ca_certs()) == 1


def test_a_context_is_cached_until_a_file_changes(certificates: Certificates) -> None:
    settings = certificates.to_dial
    first = settings.dialling_context()
    assert settings.dialling_context() is first
    os.replace(certificates.other_ca, certificates.ca)
    assert settings.dialling_context() is not first


def test_bad_files_do_not_replace_the_context_to_dial_with(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, ca = certificates.to_dial, Path(certificates.ca)
    first, content = settings.dialling_context(), ca.read_bytes()
    for bad in (b"", None, b"junk"):
        ca.unlink() if bad is None else ca.write_bytes(bad)
        for _ in range(2):
            assert settings.dialling_context() is first
        with pytest.raises(ConfigurationError, match="cannot use the ca"):
            settings.check_dialling()  # a new client must not start with them
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert f"'{ca}': no such file" in caplog.text
    ca.write_bytes(content)
    assert settings.dialling_context() is not first
    settings.check_dialling()


def test_a_path_may_be_a_path_object(certificates: Certificates) -> None:
    context = TlsSettings(ca=Path(certificates.ca)).dialling_context()
    assert len(context.get_ca_certs()) == 1


def test_certificate_and_key_may_be_in_one_file(certificates: Certificates, tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    shown = certificates.server
    both.write_text(Path(shown.key).read_text() + Path(shown.certificate).read_text())
    context = TlsSettings(certificate=both).listening_context()
    assert context.protocol is ssl.PROTOCOL_TLS_SERVER


# --- invalid settings -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: TlsSettings(key="k.pem"), "`key` requires `certificate`"),
        (lambda: TlsSettings(verify_client=True), "`verify_client` requires `ca`"),
        (lambda: TlsSettings(server_name=""), "'' is not a valid server_name"),
        (lambda: TlsSettings(server_name="[::1]"), "not a valid server_name"),
        (lambda: TlsSettings(ca="c.pem").check_listening(), "requires a certificate and its key"),
        (
            lambda: TlsSettings(server_name="x" * 300).session_to("h"),
            "is not valid in a certificate",
        ),
    ],
)
def test_invalid_settings_are_refused(make: Callable[[], object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()


def refused(settings: TlsSettings) -> str:
    listens = settings.certificate is not None
    with pytest.raises(ConfigurationError) as caught:
        settings.check_listening() if listens else settings.check_dialling()
    return str(caught.value)


@pytest.mark.parametrize("setting", ["ca", "certificate", "key"])
def test_an_unusable_file_is_named_with_its_setting(
    certificates: Certificates, tmp_path: Path, setting: str
) -> None:
    settings = certificates.to_dial if setting == "ca" else certificates.to_listen
    what = "private key" if setting == "key" else "certificate"
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path, reason in (
        (str(tmp_path / "missing.pem"), "no such file or directory"),
        (str(tmp_path), "it is not a regular file"),
        (str(fifo), "it is not a regular file"),
        (str(empty), f"it contains no {what} in PEM format"),
        ("zero\0byte", "it is not a valid file name"),
    ):
        text = refused(replace(settings, **{setting: path}))
        assert text == f"TLS: cannot use the {setting} {path!r}: {reason}"


def test_an_unreadable_file_is_refused(certificates: Certificates) -> None:
    os.chmod(certificates.server.key, 0)
    if os.access(certificates.server.key, os.R_OK):
        pytest.skip("root may read everything")
    assert "permission denied" in refused(certificates.to_listen)


@pytest.mark.parametrize("setting", ["ca", "certificate"])
def test_a_damaged_certificate_is_refused(
    certificates: Certificates, tmp_path: Path, setting: str
) -> None:
    settings = certificates.to_dial if setting == "ca" else certificates.to_listen
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    text = refused(replace(settings, **{setting: damaged}))
    assert text.startswith(f"TLS: cannot use the {setting} {str(damaged)!r}: ")


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    text = refused(replace(certificates.to_listen, key=certificates.client.key))
    assert text.endswith(f"{certificates.client.key!r}: it does not belong to the certificate")


def test_a_certificate_without_its_key_is_refused(certificates: Certificates) -> None:
    text = refused(replace(certificates.to_listen, key=None))
    assert text.endswith(
        "it contains no private key in PEM format; set `key` to the file of the key"
    )


def test_a_key_with_a_passphrase_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    plain = Path(certificates.server.key).read_bytes()
    locked = tmp_path / "locked.pem"
    locked.write_bytes(
        serialization.load_pem_private_key(plain, None).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    text = refused(replace(certificates.to_listen, key=locked))
    assert "the key" in text
    assert "protected by a passphrase" in text
