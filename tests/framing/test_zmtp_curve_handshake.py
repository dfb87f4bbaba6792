"""Bad handshakes with CURVE: a typed error where it is found, and a reason for the other side."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from nacl.bindings import crypto_box_afternm, crypto_box_beforenm, crypto_secretbox_open
from nacl.public import Box, PrivateKey, PublicKey
from tests.framing.test_zmtp_curve_golden import command
from tests.spec.requirement import requirement
from tests.support.builds import pure_only
from tests.support.curve import (
    CLIENT,
    CLIENT_PUBLIC,
    SERVER,
    SERVER_PUBLIC,
    STRANGER,
    Chance,
    client_of,
    connected,
    encoded,
    server_of,
)

from requite.errors import ConfigurationError, LocalViolation, RemoteViolation
from requite.framing import CredentialsRefused, Null, PlainClient, PlainServer, SocketType, Zmtp
from requite.framing.credentials import mechanism_to_check, mechanism_to_show
from requite.framing.zmtp_curve import CurveClient, CurveServer, KeyPair

LOW_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
    bytes.fromhex("eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


class Handshake:
    """A client and a server, and the commands that they have exchanged."""

    def __init__(self, client: Zmtp | None = None, server: Zmtp | None = None) -> None:
        self.client = client or client_of()
        self.server = server or server_of()
        self.server.receive(self.client.opening())
        self.client.receive(self.server.opening())
        self.hello = self.client.output()

    def welcome(self) -> bytes:
        self.server.receive(self.hello)
        return self.server.output()

    def initiate(self) -> bytes:
        self.client.receive(self.welcome())
        return self.client.output()

    def ready(self) -> bytes:
        self.server.receive(self.initiate())
        return self.server.output()


def refusal(framing: Zmtp, data: bytes) -> str:
    """Return the error of a framing; it must repeat the error and stay unusable."""
    with pytest.raises(RemoteViolation) as caught:
        framing.receive(data)
    assert not framing.ready
    assert framing.peer_credential is None
    with pytest.raises(RemoteViolation):
        framing.receive(b"")
    return str(caught.value)


def altered(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]


# --- keys -----------------------------------------------------------------------------------------
@requirement("curve:error", "curve:error-rejects", "curve:authentication")
def test_an_unknown_client_is_refused_before_ready_and_told_so() -> None:
    both = Handshake(client_of(STRANGER))
    initiate = both.initiate()
    with pytest.raises(CredentialsRefused, match="refused the client key") as caught:
        both.server.receive(initiate)
    assert STRANGER.public_text in str(caught.value)
    assert (error := both.server.output()) == command(b"ERROR", b"\x03400")
    assert "does not admit the key" in refusal(both.client, error)
    assert STRANGER.public_text in both.client.refusal
    assert both.client.output() == b""


def test_a_client_with_another_server_key_is_told_so() -> None:
    both = Handshake(client_of(server_key=STRANGER.public))
    with pytest.raises(CredentialsRefused, match="another server key") as caught:
        both.server.receive(both.hello)
    assert SERVER_PUBLIC in str(caught.value)
    error = both.server.output()
    assert error == command(b"ERROR", b"\x10wrong-server-key")
    assert STRANGER.public_text in refusal(both.client, error)
    assert "--curve-server-key" in both.client.refusal


def test_several_server_keys_are_valid_while_they_are_rotated() -> None:
    new = KeyPair.of(bytes(range(1, 33)))
    for key in (SERVER, new):
        both = Handshake(client_of(server_key=key.public), server_of(new, SERVER))
        both.client.receive(both.ready())
        assert both.client.ready
        assert both.server.ready
    with pytest.raises(ConfigurationError, match="at least one key"):
        CurveServer((), bool, Chance(b""))


def test_a_server_without_the_secret_key_cannot_answer() -> None:
    """A man in the middle has the public keys only."""
    both = Handshake(server=server_of(STRANGER))
    imposter = Handshake(client_of(server_key=STRANGER.public), server_of(STRANGER))
    assert "cannot decrypt the WELCOME" in refusal(both.client, imposter.welcome())


def test_an_error_of_the_check_admits_nobody() -> None:
    def check(_key: str) -> bool:
        raise OSError("the disk is gone")

    both = Handshake(server=server_of(check=check))
    initiate = both.initiate()
    with pytest.raises(OSError, match="the disk"):
        both.server.receive(initiate)
    assert not both.server.ready
    assert b"disk" not in both.server.output()


# --- HELLO ----------------------------------------------------------------------------------------
@requirement("curve:hello-validated")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: command(b"HELLO", data[8:-1]), "has 193 bytes"),
        (lambda data: command(b"HELLO", data[8:] + b"x"), "has 195 bytes"),
        (lambda data: altered(data, 8), "CurveZMQ 0.0; 1.0 is required"),
        (lambda data: altered(data, 9), "CurveZMQ 1.1; 1.0 is required"),
        (lambda data: altered(data, 10), "padding"),
        (lambda data: altered(data, 81), "padding"),
        (lambda data: altered(data, 82), "another server key"),  # C'
        (lambda data: altered(data, 121), "another server key"),  # the nonce
        (lambda data: altered(data, 122), "another server key"),  # the box
        (lambda data: altered(data, len(data) - 1), "another server key"),
        (lambda data: command(b"INITIATE", bytes(300)), "requires b'HELLO'"),
        (lambda data: command(b"MESSAGE", bytes(33)), "requires b'HELLO'"),
        (lambda data: command(b"READY", b""), "requires b'HELLO'"),
        (lambda data: b"\x00\x01x", "before the handshake was complete"),
    ],
)
def test_a_malformed_hello_is_refused(damage: Callable[[bytes], bytes], reason: str) -> None:
    both = Handshake()
    assert reason in refusal(both.server, damage(both.hello))
    assert both.server.output().startswith(b"\x04")


def test_zeros_are_required_in_the_box_of_hello() -> None:
    nonce = (1).to_bytes(8, "big")
    secret = PrivateKey(bytes(range(32)))
    between = Box(secret, PublicKey(SERVER.public))
    sealed = between.encrypt(b"\x01" * 64, b"CurveZMQHELLO---" + nonce)
    hello = b"\x01\x00" + bytes(72) + bytes(secret.public_key) + nonce + sealed.ciphertext
    assert "does not contain zeros" in refusal(Handshake().server, command(b"HELLO", hello))


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_point_of_low_order_is_refused(point: bytes) -> None:
    both = Handshake()
    hello = both.hello[:82] + point + both.hello[114:]
    assert "low order" in refusal(both.server, hello)


@requirement("curve:no-state", "curve:cookie-key")
@pure_only("the test looks into a generator")
def test_the_server_holds_no_transient_key_until_initiate() -> None:
    chance = Chance(b"server")
    both = Handshake(server=server_of(chance=chance))
    both.welcome()
    frame = both.server._handshake.gi_frame
    cookie_key, transient = chance.drawn[:2]
    held = [cookie_key, *frame.f_locals["hello"]]
    known = {"self", "metadata", "admit", "cookie_key", "command", "hello"}
    assert {*frame.f_locals} == known
    assert frame.f_locals["cookie_key"] == cookie_key
    assert transient not in held
    assert sum(map(len, held)) == 32 * 4 + 8
    both = Handshake(server=server_of())
    both.ready()
    assert both.server._handshake is None  # and the cookie key with it


def test_a_second_hello_is_refused() -> None:
    both = Handshake()
    both.welcome()
    assert "requires b'INITIATE'" in refusal(both.server, both.hello)


# --- WELCOME --------------------------------------------------------------------------------------
@requirement("curve:welcome-validated", "curve:client-no-error")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: command(b"WELCOME", data[10:-1]), "has 159 bytes"),
        (lambda data: command(b"WELCOME", data[10:] + b"x"), "has 161 bytes"),
        (lambda data: altered(data, 10), "cannot decrypt the WELCOME"),
        (lambda data: altered(data, 26), "cannot decrypt the WELCOME"),
        (lambda data: altered(data, len(data) - 1), "cannot decrypt the WELCOME"),
        (lambda data: command(b"READY", data[10:]), "requires b'WELCOME'"),
        (lambda data: command(b"HELLO", bytes(194)), "requires b'WELCOME'"),
    ],
)
def test_a_malformed_welcome_is_refused_in_silence(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    both = Handshake()
    assert reason in refusal(both.client, damage(both.welcome()))
    assert both.client.output() == b""


def test_a_welcome_of_another_connection_is_refused() -> None:
    other = Handshake(client_of(chance=Chance(b"other")))
    assert "cannot decrypt the WELCOME" in refusal(Handshake().client, other.welcome())


# --- INITIATE -------------------------------------------------------------------------------------
@requirement("curve:initiate-validated", "curve:server-verifies-nonces")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: command(b"INITIATE", data[18:][:247]), "has 247 bytes"),
        (lambda data: altered(data, 18), "cookie"),
        (lambda data: altered(data, 34), "cookie"),
        (lambda data: altered(data, 113), "cookie"),
        (lambda data: data[:121] + b"\x01" + data[122:], "not above that of HELLO"),
        (lambda data: data[:121] + b"\x03" + data[122:], "cannot decrypt the INITIATE"),
        (lambda data: altered(data, 122), "cannot decrypt the INITIATE"),
        (lambda data: altered(data, len(data) - 1), "cannot decrypt the INITIATE"),
        (lambda data: command(b"READY", data[18:]), "requires b'INITIATE'"),
    ],
)
def test_a_malformed_initiate_is_refused(damage: Callable[[bytes], bytes], reason: str) -> None:
    both = Handshake()
    assert reason in refusal(both.server, damage(both.initiate()))
    assert b"ERROR" in both.server.output()


@requirement("curve:nonce-max")
@pytest.mark.parametrize("first", [(1 << 63) + 1, (1 << 64) - 1])
@pure_only("the test replaces a function")
def test_a_counter_that_would_soon_end_is_refused(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "requite.framing.zmtp_curve._short"
    both = Handshake()
    welcome = both.welcome()
    monkeypatch.setattr(module, lambda _number: first.to_bytes(8, "big"))
    both.client.receive(welcome)
    assert "begins to count" in refusal(both.server, both.client.output())
    monkeypatch.undo()
    both = Handshake()
    initiate = both.initiate()
    monkeypatch.setattr(module, lambda _number: first.to_bytes(8, "big"))
    both.server.receive(initiate)
    assert "begins to count" in refusal(both.client, both.server.output())


def test_a_recorded_handshake_cannot_be_replayed() -> None:
    """Not even with a server whose transient keys would repeat: the cookie key is new."""
    both = Handshake()
    initiate = both.initiate()
    later = Handshake(server=server_of(chance=Chance(b"later")))
    later.server.receive(both.hello)
    assert "cookie" in refusal(later.server, initiate)


def _forged(vouch_from: KeyPair, names: bytes, transient: bytes | None = None) -> str:
    """Return the error of a server for an INITIATE with a wrong vouch, of a client that knows the
    keys of its connection."""
    chance = Chance(b"forger")
    client = Zmtp(SocketType.DEALER, mechanism=CurveClient(SERVER.public, CLIENT, chance))

    class Forger(CurveClient):
        def _vouch(self, own: bytes, servers: bytes) -> bytes:
            key = crypto_box_beforenm(servers, vouch_from.secret)
            long = self.random(16)
            plain = (transient or own) + names
            return long + crypto_box_afternm(plain, b"VOUCH---" + long, key)

    client._mechanism = Forger(SERVER.public, CLIENT, chance)
    both = Handshake(client)
    return refusal(both.server, both.initiate())


@pure_only("the test inherits from a mechanism")
def test_a_stolen_public_key_is_of_no_use() -> None:
    assert "cannot decrypt the vouch" in _forged(STRANGER, SERVER.public)


@pure_only("the test inherits from a mechanism")
def test_a_vouch_for_another_server_or_connection_is_refused() -> None:
    assert "another connection or server" in _forged(CLIENT, STRANGER.public)
    assert "another connection or server" in _forged(CLIENT, SERVER.public, bytes(32))


def test_the_cookie_has_the_transient_keys() -> None:
    mine, theirs = Chance(b"client"), Chance(b"server")
    both = Handshake(client_of(chance=mine), server_of(chance=theirs))
    cookie = both.initiate()[18:114]
    plain = crypto_secretbox_open(cookie[16:], b"COOKIE--" + cookie[:16], theirs.drawn[0])
    assert plain == KeyPair.of(mine.drawn[0]).public + theirs.drawn[1]


# --- READY ----------------------------------------------------------------------------------------
@requirement("curve:ready-validated")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: command(b"READY", data[8:][:23]), "has 23 bytes"),
        (lambda data: altered(data, 8), "cannot decrypt the READY"),
        (lambda data: altered(data, 16), "cannot decrypt the READY"),
        (lambda data: altered(data, len(data) - 1), "cannot decrypt the READY"),
        (lambda data: command(b"WELCOME", data[8:]), "requires b'READY'"),
        (lambda data: b"\x00\x03abc", "before the handshake was complete"),
    ],
)
def test_a_malformed_ready_is_refused_in_silence(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    both = Handshake()
    assert reason in refusal(both.client, damage(both.ready()))
    assert both.client.output() == b""


def test_metadata_is_checked_after_decryption() -> None:
    client = client_of(socket_type=SocketType.ROUTER)
    both = Handshake(client, server_of(socket_type=SocketType.REP))
    assert "a REP socket cannot connect to" in refusal(both.server, both.initiate())
    assert b"cannot-connect" in both.server.output()


@requirement("curve:message-after-ready")
def test_nothing_is_encoded_before_the_handshake_is_complete() -> None:
    both = Handshake()
    initiate = both.initiate()
    for framing in (both.client, both.server):
        with pytest.raises(LocalViolation, match="before the handshake"):
            framing.encode([b"x"], [])
    both.server.receive(initiate)
    reply = both.server.output() + encoded(both.server, [b"at once"])
    assert both.client.receive(reply) == [[b"at once"]]


# --- other mechanisms -----------------------------------------------------------------------------
@requirement("curve:mechanism")
@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (client_of, Null(), "the peer does not use CURVE, but keys of CURVE were given"),
        (server_of, Null(), "this side requires CURVE keys, and the peer has none"),
        (client_of, PlainServer(lambda *_: True), "PLAIN; this side uses CURVE (keys)"),
        (server_of, PlainClient("ann", "secret"), "PLAIN; this side uses CURVE (keys)"),
    ],
)
def test_a_peer_with_another_mechanism_is_refused_on_both_sides(
    ours: Callable[[], Zmtp], theirs: object, told: str
) -> None:
    framing, peer = ours(), Zmtp(SocketType.ROUTER, mechanism=theirs)
    assert told in refusal(framing, peer.opening())
    assert told in framing.refusal
    assert "CURVE" in refusal(peer, framing.opening())
    assert framing.output() == peer.output() == b""


def test_errors_of_missing_or_unwanted_keys_are_for_users() -> None:
    client = Zmtp(SocketType.DEALER, mechanism=mechanism_to_show(None, None))
    assert "`--curve-server-key`" in refusal(client, server_of().opening())
    broker = Zmtp(SocketType.ROUTER, mechanism=mechanism_to_check(None))
    assert "`--curve-key-file`" in refusal(broker, client_of().opening())


def test_two_servers_and_two_clients_are_refused() -> None:
    assert "both sides" in refusal(server_of(), server_of().opening())
    first, second = client_of(), client_of(chance=Chance(b"second"))
    first.receive(second.opening())
    second.receive(first.opening())
    assert "requires b'WELCOME'" in refusal(first, second.output())


def test_the_end_of_the_stream_within_the_handshake_is_an_error() -> None:
    both = Handshake()
    with pytest.raises(RemoteViolation, match="security mechanism or key"):
        both.client.at_end()
    client, server = connected()
    client.at_end()
    server.at_end()
    assert CLIENT_PUBLIC in str(server.peer_credential)
