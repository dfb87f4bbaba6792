"""The messages of ZAP 1.0 (27/ZAP, "Message Format"), without the empty delimiter.

    request   version | request id | domain | address | identity | mechanism | credentials …
    reply     version | request id | status | text | user id | metadata

Choices where the document leaves one:

- PLAIN has two credentials, the user name and the password. The password is empty: the access file
  has checked it, and it is not passed to another process. A handler that wants to check it itself
  refuses the peer.
- Certificates and Unix sockets have mechanisms of their own, since NULL has no credentials: TLS
  with the names of the certificate (subject, common name, `sha256:` of its key), and LOCAL with the
  user id.
- The address of a peer that is not on an IP network is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from requite.access.authentication import Authentication
from requite.errors import RemoteViolation
from requite.framing.z85 import decode_z85
from requite.framing.zmtp_command import decode_metadata
from requite.principal import Credential

VERSION: Final = b"1.0"
STRING_SIZE_MAX: Final = 255
STATUSES: Final = frozenset({"200", "300", "400", "500"})
_REPLY_FRAMES: Final = 6


class Verdict(NamedTuple):
    """A handler's reply: `status` "200" (admitted), "300" (try later), "400" (refused) or "500"
    (the handler failed), and a text in ASCII that explains it."""

    status: str
    text: str


def encode_request(peer: Authentication, domain: str, request_id: bytes) -> list[bytes]:
    """Return the frames of a question about a peer; `domain` is ASCII."""
    return [
        VERSION,
        request_id,
        domain.encode("ascii"),
        _ip_of(peer.address).encode(),
        peer.identity,
        peer.mechanism.encode(),
        *_credentials(peer.credential),
    ]


def _credentials(credential: Credential | None) -> Sequence[bytes]:
    if credential is None:
        return ()
    names = [name.encode() for name in credential.names]
    match credential.kind:
        case "plain":
            return (names[0], b"")
        case "curve":
            return (decode_z85(credential.names[0]),)
        case _:
            return names


def _ip_of(address: str) -> str:
    try:
        host = urlsplit(address).hostname or ""
        return str(ip_address(host.partition("%")[0]))
    except ValueError:
        return ""


def decode_reply(frames: Sequence[bytes], request_id: bytes) -> Verdict:
    """Return the verdict of a reply. Raises `RemoteViolation` unless it is a well-formed reply to
    the request with this id."""
    if len(frames) != _REPLY_FRAMES:
        raise RemoteViolation(f"it has {len(frames)} frames in place of {_REPLY_FRAMES}")
    version, replied_id, *strings, metadata = frames
    if version != VERSION:
        raise RemoteViolation(f"its version is {version[:8]!r} in place of {VERSION!r}")
    if replied_id != request_id:
        raise RemoteViolation("it has the id of another request")
    status, text, _user_id = map(_string, strings)
    if status not in STATUSES:
        raise RemoteViolation(f"it has the unknown status {status[:8]!r}")
    decode_metadata(metadata)
    return Verdict(status, text)


def _string(frame: bytes) -> str:
    if len(frame) > STRING_SIZE_MAX or not frame.isascii():
        raise RemoteViolation(
            f"one of its strings is not ASCII, or is longer than {STRING_SIZE_MAX} characters"
        )
    return frame.decode("ascii")
