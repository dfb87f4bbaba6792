"""Certificates of a small authority, made and read with the package `cryptography`.

Keys are of NIST P-256, which each implementation of TLS has. A certificate and its private key are
in one file, so that a renewal replaces both at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from requite.cli.keys.options import CA_CERTIFICATE, CA_KEY
from requite.errors import ConfigurationError
from requite.transport.certificate import fingerprint

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise ConfigurationError(
        "certificates require the package cryptography: pip install 'requite[keys]'"
    ) from None

# The clocks of other machines may be behind.
_BACKDATED: Final = timedelta(hours=1)
_NAME_SIZE_MAX: Final = 64  # RFC 5280, appendix A.1: ub-common-name
_SERVER: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_CLIENT: Final = (ExtendedKeyUsageOID.CLIENT_AUTH,)
_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """The authority in a folder, which signs the certificates of listeners and users."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def read(cls, folder: Path) -> Authority:
        """Read an authority. Raises `ConfigurationError`."""
        certificate, key_file = folder / CA_CERTIFICATE, folder / CA_KEY
        try:
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        except OSError as error:
            raise ConfigurationError(
                f"cannot read the authority in {folder}: {error.filename}: {error.strerror};"
                f" `requite keys new ca {folder}` makes one"
            ) from error
        except (ValueError, TypeError) as error:  # damaged; or with a passphrase
            raise ConfigurationError(f"cannot read the authority in {folder}: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigurationError(f"{key_file} is not a key that `requite keys new ca` made")
        if key.public_key() != found.public_key():
            raise ConfigurationError(f"{key_file} does not belong to {certificate}")
        return cls(found, key)

    def issue_listener(self, names: Sequence[str], days: int) -> Issued:
        """Issue the certificate of a listener, which may dial with it, too. `names`: host names and
        IP addresses by which peers dial it. Raises `ConfigurationError`."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._issue(names[0], days, _SERVER, alternatives)

    def issue_user(self, name: str, days: int) -> Issued:
        """Issue the certificate of a user, `CN=name`, which can only dial. Raises
        `ConfigurationError`."""
        return self._issue(name, days, _CLIENT)

    def _issue(
        self, name: str, days: int, usages: Sequence[x509.ObjectIdentifier], *extensions: Any
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(_subject(name), self._certificate.subject, key, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return _sign(builder, self._key, key)


def new_authority(name: str, days: int) -> Issued:
    """Make an authority, which signs certificates but no further authorities."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), _subject(name)
    builder = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
    )
    return _sign(builder, key, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(identifier, critical=False)
    )


def _sign(
    builder: x509.CertificateBuilder,
    by: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> Issued:
    certificate = builder.sign(by, hashes.SHA256())
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Issued(certificate.public_bytes(serialization.Encoding.PEM), secret)


def _subject(name: str) -> x509.Name:
    if not 1 <= len(name) <= _NAME_SIZE_MAX or not name.isprintable():
        raise ConfigurationError(
            f"the name of a certificate has 1 to {_NAME_SIZE_MAX} printable characters: {name!r}"
        )
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(name: str) -> x509.GeneralName:
    with suppress(ValueError):  # a host name
        return x509.IPAddress(ip_address(name))
    try:
        return x509.DNSName(name.encode("idna").decode())
    except UnicodeError:
        raise ConfigurationError(f"{name!r} is neither a host name nor an IP address") from None


def _key_usage(*allowed: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{usage: usage in allowed for usage in _USAGES})


# --- reading --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Shown:
    """A certificate in a file. `names` are host names and IP addresses of a listener; `key` is the
    hash of its public key, as in `requite.principal.Credential`."""

    subject: str
    names: tuple[str, ...]
    key: str
    issuer: str
    valid_from: datetime
    valid_until: datetime
    is_authority: bool


def certificates_in(path: Path) -> list[Shown]:
    """Read the certificates in a file in PEM format. Raises `ConfigurationError`."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
        return [_shown(each) for each in found]
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"cannot read a certificate in {path}: {error}") from None


def _shown(certificate: x509.Certificate) -> Shown:
    return Shown(
        certificate.subject.rfc4514_string(),
        tuple(_alternatives(certificate)),
        fingerprint(certificate.public_bytes(serialization.Encoding.DER)),
        certificate.issuer.rfc4514_string(),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        _is_authority(certificate),
    )


def _alternatives(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, found.get_values_for_type(x509.IPAddress))
    return [*found.get_values_for_type(x509.DNSName), *addresses]


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
