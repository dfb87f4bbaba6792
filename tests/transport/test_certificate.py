"""The names that a certificate proves, checked against those of `openssl` and `cryptography`."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import Certificates

from requite.principal import Credential
from requite.transport.certificate import (
    common_name,
    credential_of,
    fingerprint,
    public_key_of,
    subject_text,
)
from requite.transport.tls import TlsSettings
from requite.transport.tls_session import TlsFailure, TlsSession

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey

KEYS = {
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
}


def signed(key: Key, subject: x509.Name, extensions: int = 0) -> x509.Certificate:
    """Return a self-signed certificate, as large as `extensions` bytes make it."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
    )
    if extensions:
        oid = x509.ObjectIdentifier("1.3.6.1.4.1.55555.1")
        blob = x509.UnrecognizedExtension(oid, bytes(extensions))
        builder = builder.add_extension(blob, critical=False)
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm)


NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shop")])


@pytest.mark.parametrize("extensions", [0, 200, 70_000])
@pytest.mark.parametrize("kind", KEYS)
def test_the_public_key_is_found(kind: str, extensions: int) -> None:
    key = KEYS[kind]()
    certificate = signed(key, NAME, extensions)
    expected = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert public_key_of(der) == expected
    assert fingerprint(der) == f"sha256:{sha256(expected).hexdigest()}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_the_names_are_those_of_openssl(tmp_path: Path) -> None:
    """Of a certificate that openssl has made, in version 1, which has no field for its version."""
    place, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = r"/DC=org/O=Example, Inc./OU=Buyers+UID=7/CN=shop"

    def openssl(*words: str, data: bytes = b"") -> bytes:
        done = subprocess.run(["openssl", *words], input=data, capture_output=True, check=True)
        return done.stdout

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    request = openssl("req", "-new", *curve, "-subj", subject, "-keyout", str(key))
    place.write_bytes(openssl("x509", "-req", "-signkey", str(key), data=request))
    public = openssl("x509", "-in", str(place), "-pubkey", "-noout")
    spki = openssl("pkey", "-pubin", "-outform", "DER", data=public)
    shown = openssl("x509", "-in", str(place), "-noout", "-subject", "-nameopt", "RFC2253")

    der = ssl.PEM_cert_to_DER_cert(place.read_text())
    found = ssl._ssl._test_decode_cert(str(place))  # type: ignore[attr-defined]
    assert found["version"] == 1
    assert fingerprint(der) == f"sha256:{sha256(spki).hexdigest()}"
    # openssl writes the parts of one relative name in reverse order.
    text = subject_text(found["subject"])
    assert text == r"CN=shop,OU=Buyers+UID=7,O=Example\, Inc.,DC=org"
    assert sorted(shown.decode().strip().removeprefix("subject=")) == sorted(text)


@given(st.integers(0, 400), st.binary(max_size=8), st.integers(0, 8))
def test_damaged_certificates_are_refused_or_read(at: int, junk: bytes, cut: int) -> None:
    der = DER[:at] + junk + DER[at + cut :]
    try:
        found = public_key_of(der)
    except ValueError:
        return
    assert found in der
    assert found[0] == 0x30


DER = signed(KEYS["P-256"](), NAME).public_bytes(serialization.Encoding.DER)


@given(st.binary(max_size=300))
def test_any_bytes_are_refused_or_read(der: bytes) -> None:
    try:
        assert public_key_of(der) in der
    except ValueError:
        return


def test_every_cut_is_refused() -> None:
    for end in range(len(DER)):
        with pytest.raises(ValueError, match="certificate"):
            public_key_of(DER[:end])


# --- text -----------------------------------------------------------------------------------------
def rdn(**values: str) -> tuple[tuple[tuple[str, str], ...], ...]:
    return tuple(((kind, value),) for kind, value in values.items())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("shop", "shop"),
        ("shop,O=Bank", r"shop\,O=Bank"),
        ("a+b", r"a\+b"),
        ('say "x" <y>;', r"say \"x\" \<y\>\;"),
        ("back\\slash", r"back\\slash"),
        (" #x", r"\ #x"),
        ("#x", r"\#x"),
        ("x ", r"x\ "),
        ("shop\0", r"shop\00"),
        ("a\nb\u2028", r"a\0Ab\E2\80\A8"),
        ("Müller", "Müller"),
    ],
)
def test_special_characters_are_escaped(value: str, text: str) -> None:
    assert subject_text(rdn(commonName=value)) == f"CN={text}"


def test_a_subject_reads_from_the_most_specific_name_on() -> None:
    subject = rdn(countryName="DE", organizationName="Example", commonName="shop", title="x")
    assert subject_text(subject) == "title=x,CN=shop,O=Example,C=DE"
    assert common_name(subject) == "CN=shop"


def test_several_common_names_have_no_short_form() -> None:
    subject = (*rdn(commonName="shop"), *rdn(commonName="ops"))
    found = credential_of(subject, DER)
    assert found.names == ("CN=ops,CN=shop", fingerprint(DER))


def test_names_are_listed_once_and_most_specific_first() -> None:
    assert credential_of(rdn(commonName="shop"), DER).names == ("CN=shop", fingerprint(DER))
    assert credential_of((), DER) == Credential("tls", (fingerprint(DER),))
    assert str(credential_of(rdn(organizationName="E", commonName="shop"), DER)) == (
        "tls:CN=shop,O=E"
    )


# --- in a session ---------------------------------------------------------------------------------
def meet(listens: TlsSettings, dials: TlsSettings) -> tuple[TlsSession, TlsSession]:
    """Return both ends, dialling and listening, after a handshake."""
    client = dials.session_to("localhost")
    server = TlsSession(listens.listening_context(), None)
    client.begin()
    while to_server := client.output():
        assert server.peer_credential is None
        server.receive(to_server)
        if to_client := server.output():
            client.receive(to_client)
    assert server.established
    return client, server


def test_only_a_verified_certificate_is_a_credential(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    shown = files.user("shop")
    dials = TlsSettings(files.ca, shown.certificate, shown.key)
    listens = files.to_listen
    client, server = meet(listens, dials)
    assert server.peer_credential is None
    assert client.peer_credential is not None

    shown_to = TlsSettings(files.ca, listens.certificate, listens.key, verify_client=True)
    _, server = meet(shown_to, dials)
    der = ssl.PEM_cert_to_DER_cert(Path(shown.certificate).read_text())
    names = ("CN=shop,OU=users,O=Example", "CN=shop", fingerprint(der))
    assert server.peer_credential == Credential("tls", names)


def test_an_unreadable_certificate_ends_the_handshake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_subject: object, _der: object) -> Credential:
        raise ValueError("the certificate is cut short")

    monkeypatch.setattr("requite.transport.tls_session.credential_of", unreadable)
    files = Certificates(tmp_path)
    with pytest.raises(TlsFailure, match=r"cannot read the peer's certificate: .* cut short"):
        meet(files.to_listen, files.to_dial)
