"""Security mechanisms of ZMTP: NULL (RFC 37) and PLAIN (RFC 24). `zmtp_curve` has CURVE (RFC 25).

A mechanism is an immutable setting that all connections share; `handshake` returns the handshake of
one connection. It is a generator: it yields bytes to send, is sent the peer's next command, and
returns what it has `Established`. In place of bytes it may yield a `Login`, and goes on when that
is decided.

        NULL          both:    READY, in any order
        PLAIN, CURVE  client:  HELLO            INITIATE
                      server:         WELCOME             READY

ERROR may come in place of any command of the peer; the caller of the generator handles it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Final, NamedTuple, Protocol, TypeAlias

from requite.errors import ConfigurationError, LocalViolation, RemoteViolation
from requite.framing.base import Check, CredentialsRefused, Limits, Login, Message
from requite.framing.zmtp_command import Command, encode_command
from requite.framing.zmtp_socket import Peer
from requite.principal import Credential
from requite.value import Value

Admit: TypeAlias = Callable[[bytes], Peer]
"""Parses the metadata of a peer; raises `RemoteViolation` to refuse the peer."""


class Traffic(Protocol):
    """The encrypted traffic of one connection, in place of plain frames.

    `read`, `commands` and the properties are those of `FrameReader`, `encode` that of `Framing`.
    """

    commands: list[Command] | None
    partial_size: int

    @property
    def between_messages(self) -> bool: ...
    def read(self, chunk: bytes) -> list[Message]: ...
    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int: ...
    def encode_command(self, name: bytes, data: bytes) -> bytes: ...


class Established(NamedTuple):
    """The result of a handshake: the peer, the credential that it has proven, the last bytes to
    send, and for an encrypted connection the maker of its traffic."""

    peer: Peer
    credential: Credential | None = None
    last_words: bytes = b""
    traffic: Callable[[Limits], Traffic] | None = None


Handshake: TypeAlias = Generator[bytes | Login, Command, Established]

CURVE: Final = b"CURVE"
_PLAIN: Final = b"PLAIN"


class MechanismMismatch(RemoteViolation):
    """The peer announced another mechanism; usually, one side has no credentials."""


class Mechanism(Protocol):
    """The mechanism in the greeting, and its handshake."""

    @property
    def name(self) -> bytes: ...
    @property
    def as_server(self) -> bool: ...
    @property
    def sends_errors(self) -> bool:
        """Whether this side may tell the peer by ERROR why the handshake failed."""

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        """Return the handshake of one connection, which sends `metadata`."""

    def mismatch(self, theirs: bytes) -> str:
        """Return the error for a peer that announces the mechanism `theirs`, and what to do."""

    def refusal(self, status: str) -> str:
        """Return why a peer that sends ERROR with `status` will always refuse this client; "" if a
        later connection may succeed."""


@dataclass(frozen=True, slots=True)
class Null(Value):
    """No authentication: both sides send READY with their metadata.

    In RFC 37 the server answers the client's READY. Like libzmq, this side does not wait, unless
    `waits`: the greeting does not tell which side is the client, and two sides that wait would wait
    forever. A listener that knows its peers by other means waits, so that it can send ERROR in
    place of READY, and a refused peer sends nothing more.

    `when_plain` and `when_curve` are the errors for a peer that announces PLAIN or CURVE. Only the
    owner of the connection knows whether it is a server that requires a password or key, or a
    client that has one.
    """

    when_plain: str = "the peer uses user names and passwords (ZMTP PLAIN), but this side has none"
    when_curve: str = "the peer uses keys (ZMTP CURVE), but this side has none"
    waits: bool = False
    name = b"NULL"
    as_server = False
    sends_errors = True

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        ready = encode_command(b"READY", metadata)
        command = yield b"" if self.waits else ready
        peer = admit(data_of(command, b"READY"))
        return Established(peer, last_words=ready if self.waits else b"")

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs == CURVE:
            return self.when_curve
        return self.when_plain if theirs == _PLAIN else unknown(theirs, "NULL (no credentials)")

    def refusal(self, status: str) -> str:
        """See `Mechanism`."""
        if status != CredentialsRefused.status:
            return ""
        return (
            f"the listener does not admit this peer (status {status}): no user of its access file"
            " has the certificate or user id of this peer, its identity system refuses the user, or"
            " it requires a password or key"
        )


@dataclass(frozen=True, slots=True)
class PlainClient(Value):
    """Sends a user name and a password in clear text, each of up to 255 bytes of UTF-8."""

    username: str
    password: str = field(repr=False)
    name = _PLAIN
    as_server = False
    sends_errors = True

    def __post_init__(self) -> None:
        if max(len(self.username.encode()), len(self.password.encode())) > 255:
            raise LocalViolation(
                "a user name or password has more than 255 bytes, the maximum of ZMTP PLAIN"
            )

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        username, password = self.username.encode(), self.password.encode()
        hello = bytes((len(username),)) + username + bytes((len(password),)) + password
        command = yield encode_command(b"HELLO", hello)
        if data_of(command, b"WELCOME"):
            raise RemoteViolation("received a WELCOME with data; it must be empty")
        command = yield encode_command(b"INITIATE", metadata)
        return Established(admit(data_of(command, b"READY")))

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return unknown(theirs, "PLAIN (user name and password)")
        return (
            f"the broker does not use credentials, but those of {self.username!r} were given:"
            " remove `--credentials-file` and the URL's USER:PASSWORD, or start the broker"
            " with `--credentials-file`"
        )

    def refusal(self, status: str) -> str:
        """See `Mechanism`."""
        if status != CredentialsRefused.status:
            return ""
        return (
            f"the broker refused the user name or password of {self.username!r} (status"
            f" {status}): correct them in `--credentials-file`, or in the URL; if they are right,"
            " its identity system refuses the user"
        )


@dataclass(frozen=True, slots=True)
class PlainServer(Value):
    """Admits a client if `check(username, password)` returns what they prove.

    `check` should take the same time for each wrong input: see `same_secret` and `known_users`. The
    owner of the connection calls it (`Login`).
    """

    check: Check
    name = _PLAIN
    as_server = True
    sends_errors = True

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        command = yield b""
        username, password = _credentials(data_of(command, b"HELLO"))
        login = Login(username, password, self.check)
        yield login
        if login.proof is None:
            raise CredentialsRefused(
                f"refused the credentials of user {username!r}: the broker's"
                " `--credentials-file` has no such user, or another password",
                Credential("plain", (username,)),
            )
        command = yield encode_command(b"WELCOME")
        peer = admit(data_of(command, b"INITIATE"))
        return Established(peer, login.proof, encode_command(b"READY", metadata))

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return unknown(theirs, "PLAIN (user name and password)")
        return (
            "this broker requires a user name and password, and the peer sends none: start"
            " the peer with `--credentials-file`, or put them in its URL"
        )

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


def unknown(theirs: bytes, ours: str) -> str:
    """Return the error for a peer with another mechanism, in general words."""
    name = theirs.decode("ascii", "backslashreplace") or "(unnamed)"
    return f"the peer uses the ZMTP security mechanism {name}; this side uses {ours}"


def data_of(command: Command, expected: bytes) -> bytes:
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

    def check(username: str, password: str) -> Credential | None:
        expected = table.get(username)
        is_right = same_secret(password, expected or "") and expected is not None
        return Credential("plain", (username,)) if is_right else None

    return check
