"""Security mechanisms of ZMTP: NULL (RFC 37) and PLAIN (RFC 24).

A mechanism is an immutable setting that all connections share; `handshake` returns the handshake of
one connection. It is a generator: it yields bytes to send, is sent the peer's next command, and
returns the last bytes to send, the admitted peer, and the credential that the peer has proven.

        NULL    both:    READY, in any order
        PLAIN   client:  HELLO            INITIATE
                server:         WELCOME             READY

ERROR may come in place of any command of the peer; the caller of the generator handles it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import ClassVar, Final, Protocol, TypeAlias

from requite.errors import ConfigurationError, LocalViolation, RemoteViolation
from requite.framing.base import CredentialsRefused
from requite.framing.zmtp_command import Command, encode_command
from requite.framing.zmtp_socket import Peer
from requite.principal import Credential

Admit: TypeAlias = Callable[[bytes], Peer]
"""Parses the metadata of a peer; raises `RemoteViolation` to refuse the peer."""

Handshake: TypeAlias = Generator[bytes, Command, tuple[bytes, Peer, Credential | None]]
Check: TypeAlias = Callable[[str, str], bool]

# The status of ZAP (RFC 27) for failed authentication, which libzmq servers send as the reason.
REFUSED_STATUS: Final = "400"
_PLAIN: Final = b"PLAIN"


class MechanismMismatch(RemoteViolation):
    """The peer announced another mechanism; usually, one side has no credentials."""


class Mechanism(Protocol):
    """The mechanism in the greeting, and its handshake."""

    @property
    def name(self) -> bytes: ...
    @property
    def as_server(self) -> bool: ...
    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        """Return the handshake of one connection, which sends `metadata`."""

    def mismatch(self, theirs: bytes) -> str:
        """Return the error for a peer that announces the mechanism `theirs`, and what to do."""

    def refusal(self, status: str) -> str:
        """Return why a peer that sends ERROR with `status` will always refuse this client; "" if a
        later connection may succeed."""


@dataclass(frozen=True, slots=True)
class Null:
    """No authentication: both sides send READY with their metadata.

    In RFC 37 the server answers the client's READY. Like libzmq, this side does not wait: the
    greeting does not tell which side is the client, and two sides that wait would wait forever.

    `when_plain` is the error for a peer that announces PLAIN. Only the owner of the connection
    knows whether it is a server that requires a password or a client that sends one.
    """

    when_plain: str = "the peer uses user names and passwords (ZMTP PLAIN), but this side has none"
    name: ClassVar[bytes] = b"NULL"
    as_server: ClassVar[bool] = False

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        command = yield encode_command(b"READY", metadata)
        return b"", admit(_data_of(command, b"READY")), None

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        return self.when_plain if theirs == _PLAIN else _unknown(theirs, "NULL (no credentials)")

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


@dataclass(frozen=True, slots=True)
class PlainClient:
    """Sends a user name and a password in clear text, each of up to 255 bytes of UTF-8."""

    username: str
    password: str = field(repr=False)
    name: ClassVar[bytes] = _PLAIN
    as_server: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if max(len(self.username.encode()), len(self.password.encode())) > 255:
            raise LocalViolation(
                "a user name or password has more than 255 bytes, the maximum of ZMTP PLAIN"
            )

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        username, password = self.username.encode(), self.password.encode()
        hello = bytes((len(username),)) + username + bytes((len(password),)) + password
        command = yield encode_command(b"HELLO", hello)
        if _data_of(command, b"WELCOME"):
            raise RemoteViolation("received a WELCOME with data; it must be empty")
        command = yield encode_command(b"INITIATE", metadata)
        return b"", admit(_data_of(command, b"READY")), None

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return _unknown(theirs, "PLAIN (user name and password)")
        return (
            f"the broker does not use credentials, but those of {self.username!r} were given:"
            " remove `--credentials-file` and the URL's USER:PASSWORD, or start the broker"
            " with `--credentials-file`"
        )

    def refusal(self, status: str) -> str:
        """See `Mechanism`."""
        if status != REFUSED_STATUS:
            return ""
        return (
            f"the broker refused the user name or password of {self.username!r} (status"
            f" {status}): correct them in `--credentials-file`, or in the URL"
        )


@dataclass(frozen=True, slots=True)
class PlainServer:
    """Admits a client if `check(username, password)` returns True.

    `check` should take the same time for each wrong input: see `same_secret` and `known_users`.
    """

    check: Check
    name: ClassVar[bytes] = _PLAIN
    as_server: ClassVar[bool] = True

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        command = yield b""
        username, password = _credentials(_data_of(command, b"HELLO"))
        if not self.check(username, password):
            raise CredentialsRefused(
                f"refused the credentials of user {username!r}: the broker's"
                " `--credentials-file` has no such user, or another password"
            )
        command = yield encode_command(b"WELCOME")
        peer = admit(_data_of(command, b"INITIATE"))
        return encode_command(b"READY", metadata), peer, Credential("plain", (username,))

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return _unknown(theirs, "PLAIN (user name and password)")
        return (
            "this broker requires a user name and password, and the peer sends none: start"
            " the peer with `--credentials-file`, or put them in its URL"
        )

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


def _unknown(theirs: bytes, ours: str) -> str:
    name = theirs.decode("ascii", "backslashreplace") or "(unnamed)"
    return f"the peer uses the ZMTP security mechanism {name}; this side uses {ours}"


def _data_of(command: Command, expected: bytes) -> bytes:
    """Return the data of the expected command; raise `RemoteViolation` for any other."""
    if command.name != expected:
        raise RemoteViolation(
            f"received the command {command.name!r} where the handshake requires {expected!r}"
        )
    return command.data


def _credentials(data: bytes) -> tuple[str, str]:
    """Parse the data of HELLO: u8 length and user name, u8 length and password."""
    border = 1 + data[0] if data else 0
    if not 0 < border < len(data) or len(data) != border + 1 + data[border]:
        raise RemoteViolation("malformed HELLO: it does not contain a user name and a password")
    try:
        return data[1:border].decode(), data[border + 1 :].decode()
    except UnicodeDecodeError as error:
        raise CredentialsRefused("the user name or password is not UTF-8") from error


# --- helpers for checks -------------------------------------------------------------------------


def same_secret(given: str, expected: str) -> bool:
    """Compare two secrets in a time that does not depend on how many bytes are equal."""
    return compare_digest(given.encode(), expected.encode())


def known_users(passwords: Mapping[str, str]) -> Check:
    """Return a check of user names and passwords against a table.

    An unknown user costs the same comparison as a known one, so the time reveals no user names.
    Raises `ConfigurationError` for an empty name or password.
    """
    table = dict(passwords)
    if not all(table) or not all(table.values()):
        raise ConfigurationError("a user name or a password is empty; give each user both")

    def check(username: str, password: str) -> bool:
        expected = table.get(username)
        return same_secret(password, expected or "") and expected is not None

    return check
