"""Security mechanisms of ZMTP: NULL (RFC 37) and PLAIN (RFC 24).

A mechanism is a small immutable setting, shared by all connections; `handshake` makes the exchange
for one of them. An exchange is a generator: it yields bytes to send, is sent the peer's next
command, and returns the last bytes to send together with the peer that it has admitted.

        NULL    both:    READY, in any order
        PLAIN   client:  HELLO            INITIATE
                server:         WELCOME             READY

ERROR may come in place of any answer of the peer's; whoever drives the generator sees to that.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import ClassVar, Final, Protocol, TypeAlias

from requite.errors import LocalViolation, RemoteViolation
from requite.framing.zmtp_command import Command, encode_command
from requite.framing.zmtp_socket import Peer

Admit: TypeAlias = Callable[[bytes], Peer]
"""Reads the peer's metadata; raises `RemoteViolation` to refuse it."""

Handshake: TypeAlias = Generator[bytes, Command, tuple[bytes, Peer]]
Check: TypeAlias = Callable[[str, str], bool]

# The status of ZAP (RFC 27) for failed authentication, which servers on libzmq give as the reason.
REFUSED_STATUS: Final = "400"
_PLAIN: Final = b"PLAIN"


class CredentialsRefused(RemoteViolation):
    """The peer's user name and password did not pass our check."""


class MechanismMismatch(RemoteViolation):
    """The peer announced another mechanism than ours; mostly, one side has no credentials."""


class Mechanism(Protocol):
    """What the greeting announces, and how to make the exchange that follows it."""

    @property
    def name(self) -> bytes: ...
    @property
    def as_server(self) -> bool: ...
    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        """Return the exchange for one connection, in which we announce `metadata`."""

    def mismatch(self, theirs: bytes) -> str:
        """Return what is wrong, and what to do, when the peer announces the mechanism `theirs`."""

    def refusal(self, status: str) -> str:
        """Return why a peer refuses us for good that sends ERROR with `status`; "" if it may take
        us another time."""


@dataclass(frozen=True, slots=True)
class Null:
    """No authentication: both sides send READY with their metadata.

    RFC 37 lets the server answer the client's READY; like libzmq, we do not wait, because neither
    side can tell from the greeting who is the client, and two that wait would wait for ever.

    `when_plain` is what to say of a peer that announces PLAIN: only the owner of the connection
    knows whether that is a server that asks for a password or a client that shows one.
    """

    when_plain: str = "the peer uses user names and passwords (ZMTP PLAIN), and none are used here"
    name: ClassVar[bytes] = b"NULL"
    as_server: ClassVar[bool] = False

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        command = yield encode_command(b"READY", metadata)
        return b"", admit(_data_of(command, b"READY"))

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        return self.when_plain if theirs == _PLAIN else _unknown(theirs, "NULL (no credentials)")

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


@dataclass(frozen=True, slots=True)
class PlainClient:
    """Announces a user name and a password, in clear text, of up to 255 bytes of UTF-8 each."""

    username: str
    password: str = field(repr=False)
    name: ClassVar[bytes] = _PLAIN
    as_server: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if max(len(self.username.encode()), len(self.password.encode())) > 255:
            raise LocalViolation("PLAIN carries user names and passwords of up to 255 bytes")

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        username, password = self.username.encode(), self.password.encode()
        hello = bytes((len(username),)) + username + bytes((len(password),)) + password
        command = yield encode_command(b"HELLO", hello)
        if _data_of(command, b"WELCOME"):
            raise RemoteViolation("a WELCOME with data")
        command = yield encode_command(b"INITIATE", metadata)
        return b"", admit(_data_of(command, b"READY"))

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return _unknown(theirs, "PLAIN (user name and password)")
        return (
            f"the broker asks for no user name and password, and those of {self.username!r} were"
            " given: leave out `--credentials-file` and the URL's USER:PASSWORD, or start the"
            " broker with `--credentials-file`"
        )

    def refusal(self, status: str) -> str:
        """See `Mechanism`."""
        if status != REFUSED_STATUS:
            return ""
        return (
            f"the broker refused the user name or the password of {self.username!r} (status"
            f" {status}): correct them in `--credentials-file`, or in the URL"
        )


@dataclass(frozen=True, slots=True)
class PlainServer:
    """Asks `check(username, password)` whether a client may come in.

    `check` should take the same time whatever is wrong: see `same_secret` and `known_users`.
    """

    check: Check
    name: ClassVar[bytes] = _PLAIN
    as_server: ClassVar[bool] = True

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        command = yield b""
        username, password = _credentials(_data_of(command, b"HELLO"))
        if not self.check(username, password):
            raise CredentialsRefused(
                f"the credentials of user {username!r} were refused: the broker's"
                " `--credentials-file` has no such user, or another password"
            )
        command = yield encode_command(b"WELCOME")
        peer = admit(_data_of(command, b"INITIATE"))
        return encode_command(b"READY", metadata), peer

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return _unknown(theirs, "PLAIN (user name and password)")
        return (
            "the peer shows no user name and password, which this broker requires: give the peer"
            " `--credentials-file`, or put them in its URL"
        )

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


def _unknown(theirs: bytes, ours: str) -> str:
    name = theirs.decode("ascii", "backslashreplace") or "without a name"
    return f"the peer uses the security mechanism {name} of ZMTP; here it is {ours}"


def _data_of(command: Command, expected: bytes) -> bytes:
    """Return the data of the one command that may come now."""
    if command.name != expected:
        raise RemoteViolation(f"{command.name!r} came where the handshake demands {expected!r}")
    return command.data


def _credentials(data: bytes) -> tuple[str, str]:
    """Split HELLO's data: u8 length and user name, u8 length and password, and nothing behind."""
    border = 1 + data[0] if data else 0
    if not 0 < border < len(data) or len(data) != border + 1 + data[border]:
        raise RemoteViolation("malformed HELLO: it does not hold a user name and a password")
    try:
        return data[1:border].decode(), data[border + 1 :].decode()
    except UnicodeDecodeError as error:
        raise CredentialsRefused("user name or password is not UTF-8") from error


# --- helpers for checks -------------------------------------------------------------------------


def same_secret(given: str, expected: str) -> bool:
    """Compare two secrets in a time that does not tell how much of them is equal."""
    return compare_digest(given.encode(), expected.encode())


def known_users(passwords: Mapping[str, str]) -> Check:
    """Return a check against a table of user names and passwords.

    An unknown user costs the same comparison as a known one, so time does not tell who exists.
    """
    table = dict(passwords)

    def check(username: str, password: str) -> bool:
        expected = table.get(username)
        return same_secret(password, expected or "") and expected is not None

    return check
