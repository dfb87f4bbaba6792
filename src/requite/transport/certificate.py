"""The names that a verified certificate proves: its subject, and the hash of its public key.

The `ssl` module returns the subject and the certificate in DER, but no public key. The walk to it
takes six elements of DER, so TLS needs no further package.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Final, TypeAlias

from requite.principal import Credential

Subject: TypeAlias = tuple[tuple[tuple[str, str], ...], ...]
"""The relative distinguished names of a subject, as `ssl.SSLObject.getpeercert` returns them."""

# RFC 4514, section 3; other types have the names of OpenSSL, or are in dotted form.
_SHORT: Final = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_COMMON_NAME: Final = "commonName"
# RFC 4514, section 2.4: special anywhere in a value, and at its start or end.
_SPECIAL: Final = re.compile(r'["+,;<>\\]|^[ #]| $')
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0  # [0], constructed
# RFC 5280, section 4.1: serial number, signature, issuer, validity and subject.
_BEFORE_PUBLIC_KEY: Final = 5


def credential_of(subject: Subject, der: bytes) -> Credential:
    """Return the credential of a verified certificate. The names are its subject, its common name
    and `sha256:` with the hash of its public key; those that it does not have are left out.

    Raises `ValueError` for a certificate that is not in DER.
    """
    names = [text for text in (subject_text(subject), common_name(subject)) if text]
    return Credential("tls", tuple(dict.fromkeys((*names, fingerprint(der)))))


def subject_text(subject: Subject) -> str:
    """Return a subject as text, the most specific name first (RFC 4514): `CN=shop,O=Example`."""
    return ",".join("+".join(map(_pair, parts)) for parts in reversed(subject))


def common_name(subject: Subject) -> str:
    """Return the common name (`CN=shop`); "" without one, or if there are several, which different
    readers may choose from differently."""
    found = [_pair(part) for parts in subject for part in parts if part[0] == _COMMON_NAME]
    return found[0] if len(found) == 1 else ""


def fingerprint(der: bytes) -> str:
    """Return `sha256:` and the SHA-256, in hex, of a certificate's public key, with its algorithm
    (SubjectPublicKeyInfo in DER, RFC 5280, section 4.1.2.7), as in RFC 7469, section 2.4.

    Raises `ValueError` for a certificate that is not in DER.
    """
    return f"sha256:{sha256(public_key_of(der)).hexdigest()}"


def public_key_of(der: bytes) -> bytes:
    """Return the SubjectPublicKeyInfo of a certificate, in DER. Raises `ValueError`."""
    certificate = _inside(der, 0, len(der))
    start, end = _inside(der, *certificate)
    elements = _elements(der, start, end)
    first = next(elements)
    to_skip = _BEFORE_PUBLIC_KEY if der[first[0]] == _VERSION else _BEFORE_PUBLIC_KEY - 1
    for _ in range(to_skip):
        next(elements)
    key_start, key_end = next(elements)
    if der[key_start] != _SEQUENCE:
        raise ValueError("the public key of the certificate is not a sequence")
    return der[key_start:key_end]


# --- DER (X.690) ----------------------------------------------------------------------------------
def _inside(der: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the bounds of the content of the sequence at `start`."""
    content, after = _header(der, start, end)
    if der[start] != _SEQUENCE:
        raise ValueError(f"byte {start} of the certificate does not start a sequence")
    return content, after


def _elements(der: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of each element, its header included; after the last one, raise."""
    while True:
        _, after = _header(der, start, end)
        yield start, after
        start = after


def _header(der: bytes, start: int, end: int) -> tuple[int, int]:
    """Return where the content of the element at `start` begins and ends."""
    content = start + 2
    if content > end:
        raise ValueError("the certificate is cut short")
    size = der[start + 1]
    if size >= 0x80:  # the long form: the number of bytes of the size
        count = size & 0x7F
        if not 1 <= count <= 4 or content + count > end:
            raise ValueError(f"byte {start + 1} of the certificate is not a size in DER")
        size = int.from_bytes(der[content : content + count], "big")
        content += count
    if content + size > end:
        raise ValueError("the certificate is cut short")
    return content, content + size


# --- text -----------------------------------------------------------------------------------------
def _pair(part: tuple[str, str]) -> str:
    kind, value = part
    return f"{_SHORT.get(kind, kind)}={_escape(value)}"


def _escape(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\g<0>", value)
    return "".join(_printable(escaped))


def _printable(text: Iterable[str]) -> Iterator[str]:
    """Yield characters; unprintable ones as a backslash and the hex digits of each byte."""
    for character in text:
        if character.isprintable():
            yield character
        else:
            yield "".join(f"\\{byte:02X}" for byte in character.encode())
