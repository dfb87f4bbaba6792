"""The security mechanism CURVE of ZMTP (RFC 25): the handshake of CurveZMQ (RFC 26).

        client:  HELLO            INITIATE                  C, S    the permanent key pairs
        server:         WELCOME             READY           C', S'  those of one connection

        HELLO     C', Box[64 zeros](C'→S)
        WELCOME   Box[S', cookie](S→C')                     cookie = Box[C', s'](K)
        INITIATE  cookie, Box[C, vouch, metadata](C'→S')    vouch = Box[C', S](C→S')
        READY     Box[metadata](S'→C')

The client knows S in advance. After INITIATE the server knows C, which no one else can read.
`zmtp_curve_traffic` is what follows. Choices where the RFCs leave one:

- The cookie key K is new for each connection, as in libzmq. Between WELCOME and INITIATE the server
  holds K and what HELLO has said, some hundred bytes. With a K for all connections, a recorded
  INITIATE would be valid on another connection, and so would the messages that followed it.
- RFC 26 says that a client which fails authentication gets no response, and that it gets ERROR.
  Like libzmq, the server sends ERROR. A client never sends ERROR ("SHALL NOT").
- Its text has 70 bytes of padding in HELLO. 72 make the 200 bytes that it requires.

This module imports PyNaCl; only connections with CURVE import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Final, NamedTuple, TypeAlias

from nacl.bindings import (
    crypto_box_afternm,
    crypto_box_beforenm,
    crypto_box_open_afternm,
    crypto_scalarmult_base,
    crypto_secretbox,
    crypto_secretbox_open,
)
from nacl.exceptions import CryptoError

from requite.errors import ConfigurationError, RemoteViolation
from requite.framing.base import CredentialsRefused
from requite.framing.z85 import KEY_SIZE, encode_z85
from requite.framing.zmtp_command import encode_command
from requite.framing.zmtp_curve_traffic import CLIENT, SERVER, CurveTraffic, Way
from requite.framing.zmtp_mechanism import CURVE, Admit, Established, Handshake, data_of, unknown
from requite.principal import Credential
from requite.value import Value

Random: TypeAlias = Callable[[int], bytes]
"""Returns so many random bytes, from a cryptographic source."""

CheckKey: TypeAlias = Callable[[str], bool]
"""Whether a client with this public key (Z85) is admitted."""

_VERSION: Final = b"\x01\x00"
_HELLO_PADDING: Final = bytes(72)
_HELLO_HEAD: Final = _VERSION + _HELLO_PADDING
_HELLO_PLAIN: Final = bytes(64)
_MAC_SIZE: Final = 16
_SHORT_SIZE: Final = 8  # of a short nonce, a counter
_LONG_SIZE: Final = 16  # of a long nonce, random
_COUNT_MAX: Final = 1 << 63

# Sizes of the data of commands, without their names.
_HELLO_SIZE: Final = len(_HELLO_HEAD) + KEY_SIZE + _SHORT_SIZE + _MAC_SIZE + len(_HELLO_PLAIN)
_COOKIE_SIZE: Final = _LONG_SIZE + _MAC_SIZE + 2 * KEY_SIZE
_WELCOME_SIZE: Final = _LONG_SIZE + _MAC_SIZE + KEY_SIZE + _COOKIE_SIZE
_VOUCH_SIZE: Final = _LONG_SIZE + _MAC_SIZE + 2 * KEY_SIZE
_INITIATE_SIZE_MIN: Final = _COOKIE_SIZE + _SHORT_SIZE + _MAC_SIZE + KEY_SIZE + _VOUCH_SIZE
_READY_SIZE_MIN: Final = _SHORT_SIZE + _MAC_SIZE

# The first bytes of nonces; a short or long nonce follows.
_FOR_HELLO: Final = b"CurveZMQHELLO---"
_FOR_WELCOME: Final = b"WELCOME-"
_FOR_COOKIE: Final = b"COOKIE--"
_FOR_INITIATE: Final = b"CurveZMQINITIATE"
_FOR_VOUCH: Final = b"VOUCH---"
_FOR_READY: Final = b"CurveZMQREADY---"


class WrongServerKey(CredentialsRefused):
    """The client's HELLO is for another server key."""

    status: ClassVar[str] = "wrong-server-key"


@dataclass(frozen=True, slots=True)
class KeyPair(Value):
    """A secret key and its public key, 32 bytes each; `repr` shows the public one only."""

    secret: bytes = field(repr=False)
    public: bytes

    @classmethod
    def of(cls, secret: bytes) -> KeyPair:
        """Return the pair of a secret key of 32 bytes."""
        return cls(secret, crypto_scalarmult_base(secret))

    @property
    def public_text(self) -> str:
        """The public key in Z85."""
        return encode_z85(self.public)


class _Hello(NamedTuple):
    """All that a server holds of a client until INITIATE, beside the cookie key: the transient
    public key, the nonce, the own public key that the client knows, and the key shared by both."""

    client: bytes
    nonce: bytes
    server: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CurveClient(Value):
    """Connects only to the holder of `server_key`, and proves that it holds `own`.

    `server_key`: 32 bytes. `random` is the source of key pairs and nonces.
    """

    server_key: bytes
    own: KeyPair
    random: Random = field(repr=False)
    name = CURVE
    as_server = False
    sends_errors = False

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        transient = KeyPair.of(self.random(KEY_SIZE))
        to_server = _shared_key(self.server_key, transient.secret)
        nonce = _short(1)
        box = crypto_box_afternm(_HELLO_PLAIN, _FOR_HELLO + nonce, to_server)
        command = yield encode_command(b"HELLO", _HELLO_HEAD + transient.public + nonce + box)

        welcome = data_of(command, b"WELCOME")
        _check_size(b"WELCOME", welcome, _WELCOME_SIZE, _WELCOME_SIZE)
        long, box = welcome[:_LONG_SIZE], welcome[_LONG_SIZE:]
        opened = _open(box, _FOR_WELCOME + long, to_server, "the WELCOME of the server")
        servers, cookie = opened[:KEY_SIZE], opened[KEY_SIZE:]
        session = _shared_key(servers, transient.secret)

        nonce = _short(2)
        vouch = self._vouch(transient.public, servers)
        plain = self.own.public + vouch + metadata
        box = crypto_box_afternm(plain, _FOR_INITIATE + nonce, session)
        command = yield encode_command(b"INITIATE", cookie + nonce + box)

        ready = data_of(command, b"READY")
        _check_size(b"READY", ready, _READY_SIZE_MIN)
        nonce, box = ready[:_SHORT_SIZE], ready[_SHORT_SIZE:]
        theirs = _open(box, _FOR_READY + nonce, session, "the READY of the server")
        return Established(
            admit(theirs),
            Credential("curve", (encode_z85(self.server_key),)),
            traffic=partial(CurveTraffic, session, Way(CLIENT, 2), Way(SERVER, _number(nonce))),
        )

    def _vouch(self, transient: bytes, servers: bytes) -> bytes:
        """Return the proof that the holder of the own key uses this transient key, at this server
        and no other."""
        long = self.random(_LONG_SIZE)
        key = _shared_key(servers, self.own.secret)
        return long + crypto_box_afternm(transient + self.server_key, _FOR_VOUCH + long, key)

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return unknown(theirs, "CURVE (keys)")
        return (
            "the peer does not use CURVE, but keys of CURVE were given: start it with"
            " `--curve-key-file`, or remove `--curve-server-key` and the URL's `curve`"
        )

    def refusal(self, status: str) -> str:
        """See `Mechanism`."""
        if status == WrongServerKey.status:
            return (
                f"the peer does not have the server key {encode_z85(self.server_key)!r}: correct"
                " `--curve-server-key`, or `curve` in the URL"
            )
        if status == CredentialsRefused.status:
            return (
                f"the peer does not admit the key {self.own.public_text!r} (status {status}): add"
                " it to the keys of its clients (`--curve-clients`)"
            )
        return ""


@dataclass(frozen=True, slots=True)
class CurveServer(Value):
    """Admits a client if `check` returns True for its public key, in Z85.

    `own`: one key pair, or several that are all valid while keys are rotated. `random` is the
    source of key pairs, cookie keys and nonces.
    """

    own: Sequence[KeyPair]
    check: CheckKey = field(repr=False)
    random: Random = field(repr=False)
    name = CURVE
    as_server = True
    sends_errors = True

    def __post_init__(self) -> None:
        if not self.own:
            raise ConfigurationError("a server with CURVE must have at least one key")

    def handshake(self, metadata: bytes, admit: Admit) -> Handshake:
        cookie_key = self.random(KEY_SIZE)
        command = yield b""
        hello = self._open_hello(data_of(command, b"HELLO"))
        command = yield encode_command(b"WELCOME", self._welcome(hello, cookie_key))
        initiate = data_of(command, b"INITIATE")
        _check_size(b"INITIATE", initiate, _INITIATE_SIZE_MIN)
        client, secret = _open_cookie(initiate[:_COOKIE_SIZE], cookie_key)
        nonce = initiate[_COOKIE_SIZE:][:_SHORT_SIZE]
        if nonce <= hello.nonce:
            raise RemoteViolation("the nonce of INITIATE is not above that of HELLO")
        session = _shared_key(client, secret)
        box = initiate[_COOKIE_SIZE + _SHORT_SIZE :]
        plain = _open(box, _FOR_INITIATE + nonce, session, "the INITIATE of the client")
        permanent, vouch = plain[:KEY_SIZE], plain[KEY_SIZE:][:_VOUCH_SIZE]
        key = _shared_key(permanent, secret)
        long, box = vouch[:_LONG_SIZE], vouch[_LONG_SIZE:]
        if _open(box, _FOR_VOUCH + long, key, "the vouch of the client") != client + hello.server:
            raise RemoteViolation("the vouch of the client is for another connection or server")
        text = encode_z85(permanent)
        if not self.check(text):
            raise CredentialsRefused(
                f"refused the client key {text!r}: it is not among the keys of the clients that are"
                " admitted (`--curve-clients`)",
                Credential("curve", (text,)),
            )
        peer = admit(plain[KEY_SIZE + _VOUCH_SIZE :])
        answer = _short(1)
        box = crypto_box_afternm(metadata, _FOR_READY + answer, session)
        return Established(
            peer,
            Credential("curve", (text,)),
            encode_command(b"READY", answer + box),
            partial(CurveTraffic, session, Way(SERVER, 1), Way(CLIENT, _number(nonce))),
        )

    def _welcome(self, hello: _Hello, cookie_key: bytes) -> bytes:
        """Return the data of WELCOME. The new transient secret key is in its cookie only."""
        transient = KeyPair.of(self.random(KEY_SIZE))
        long = self.random(_LONG_SIZE)
        plain = hello.client + transient.secret
        cookie = long + crypto_secretbox(plain, _FOR_COOKIE + long, cookie_key)
        long = self.random(_LONG_SIZE)
        plain = transient.public + cookie
        return long + crypto_box_afternm(plain, _FOR_WELCOME + long, hello.key)

    def _open_hello(self, hello: bytes) -> _Hello:
        _check_size(b"HELLO", hello, _HELLO_SIZE, _HELLO_SIZE)
        if not hello.startswith(_HELLO_HEAD):
            if not hello.startswith(_VERSION):
                raise RemoteViolation(
                    f"the peer speaks CurveZMQ {hello[0]}.{hello[1]}; 1.0 is required"
                )
            raise RemoteViolation("malformed HELLO: its padding is not zero")
        client, rest = hello[len(_HELLO_HEAD) :][:KEY_SIZE], hello[len(_HELLO_HEAD) + KEY_SIZE :]
        nonce, box = rest[:_SHORT_SIZE], rest[_SHORT_SIZE:]
        for pair in self.own:
            key = _shared_key(client, pair.secret)
            try:
                plain = crypto_box_open_afternm(box, _FOR_HELLO + nonce, key)
            except CryptoError:
                continue
            if plain != _HELLO_PLAIN:
                raise RemoteViolation("malformed HELLO: its box does not contain zeros")
            return _Hello(client, nonce, pair.public, key)
        raise WrongServerKey(
            "the client's HELLO is for another server key: its `--curve-server-key` must be the"
            f" public key of this server, {self.own[0].public_text!r}"
        )

    def mismatch(self, theirs: bytes) -> str:
        """See `Mechanism`."""
        if theirs != b"NULL":
            return unknown(theirs, "CURVE (keys)")
        return (
            "this side requires CURVE keys, and the peer has none: start the peer with"
            " `--curve-server-key` and `--curve-key-file`, or put them in its URL"
        )

    def refusal(self, _status: str) -> str:
        """See `Mechanism`."""
        return ""


# --- boxes and nonces -----------------------------------------------------------------------------
def _short(number: int) -> bytes:
    return number.to_bytes(_SHORT_SIZE, "big")


def _number(nonce: bytes) -> int:
    """Return the counter in a nonce, from which the peer goes on to count.

    Raises `RemoteViolation` if so few are left that it could reach the end ("SHALL NOT send more
    than 2^64-1 commands").
    """
    number = int.from_bytes(nonce, "big")
    if number > _COUNT_MAX:
        raise RemoteViolation(f"the peer begins to count its nonces at {number}")
    return number


def _shared_key(public: bytes, secret: bytes) -> bytes:
    """Return the key that two pairs share.

    Raises `RemoteViolation` for a point of low order: the key would be known to everybody.
    """
    try:
        return crypto_box_beforenm(public, secret)
    except CryptoError as error:
        raise RemoteViolation("the peer's public key is a point of low order") from error


def _open(box: bytes, nonce: bytes, key: bytes, what: str) -> bytes:
    try:
        return crypto_box_open_afternm(box, nonce, key)
    except CryptoError:
        raise RemoteViolation(
            f"cannot decrypt {what}: it is damaged, or another key was used"
        ) from None


def _open_cookie(cookie: bytes, key: bytes) -> tuple[bytes, bytes]:
    """Return the transient keys in a cookie: the client's public one and the own secret one."""
    try:
        plain = crypto_secretbox_open(cookie[_LONG_SIZE:], _FOR_COOKIE + cookie[:_LONG_SIZE], key)
    except CryptoError:
        raise RemoteViolation("the cookie in INITIATE was not made for this connection") from None
    return plain[:KEY_SIZE], plain[KEY_SIZE:]


def _check_size(name: bytes, data: bytes, low: int, high: int | None = None) -> None:
    if len(data) < low or (high is not None and len(data) > high):
        least = "" if low == high else "at least "
        raise RemoteViolation(
            f"malformed {name.decode()}: it has {len(data)} bytes of data; {least}{low} are"
            " required"
        )
