"""The bytes of a handshake with CURVE and of its traffic, with fixed keys (RFC 26).

`build` makes the expected bytes with another interface of libsodium than `zmtp_curve`, after the
grammar of RFC 26; the hashes in `GOLDEN` hold them fixed. `tests/interop/test_curve_pyzmq.py` shows
that libzmq understands the same commands.
"""

from __future__ import annotations

from hashlib import sha256
from struct import pack
from typing import Final

import pytest
from nacl.public import Box, PrivateKey, PublicKey
from nacl.secret import SecretBox
from tests.spec.requirement import requirement
from tests.support.curve import (
    CLIENT,
    CLIENT_PUBLIC,
    SERVER,
    SERVER_PUBLIC,
    Chance,
    client_of,
    connected,
    encoded,
    server_of,
)

from requite.errors import ConfigurationError
from requite.framing import SocketType, Zmtp
from requite.framing.z85 import decode_z85, encode_z85, read_key
from requite.framing.zmtp_command import encode_metadata
from requite.principal import Credential

GREETING: Final = bytes.fromhex("ff 0000000000000000 7f 03 01") + b"CURVE".ljust(20, b"\0")
DEALER: Final = encode_metadata({"Socket-Type": b"DEALER", "Identity": b""})
ROUTER: Final = encode_metadata({"Socket-Type": b"ROUTER", "Identity": b""})


def box(secret: bytes, public: bytes, nonce: bytes, plain: bytes) -> bytes:
    """Return Box[plain](secret → public)."""
    sealed = Box(PrivateKey(secret), PublicKey(public)).encrypt(plain, nonce)
    return bytes(sealed.ciphertext)


def command(name: bytes, data: bytes) -> bytes:
    """Return a command in its frame."""
    body = bytes((len(name),)) + name + data
    return (pack(">BB", 4, len(body)) if len(body) < 256 else pack(">BQ", 6, len(body))) + body


def build() -> dict[str, bytes]:
    """Return the commands of a handshake in which both sides draw from `Chance`, and a message."""
    chance = Chance(b"client")
    c_secret, vouch_nonce = chance(32), chance(16)
    chance = Chance(b"server")
    k, s_secret, cookie_nonce, welcome_nonce = chance(32), chance(32), chance(16), chance(16)
    c_public = bytes(PrivateKey(c_secret).public_key)
    s_public = bytes(PrivateKey(s_secret).public_key)
    one, two, three = (pack(">Q", number) for number in (1, 2, 3))

    signature = box(c_secret, SERVER.public, b"CurveZMQHELLO---" + one, bytes(64))
    hello = b"\x01\x00" + bytes(72) + c_public + one + signature
    sealed = SecretBox(k).encrypt(c_public + s_secret, b"COOKIE--" + cookie_nonce)
    cookie = cookie_nonce + sealed.ciphertext
    welcome = box(SERVER.secret, c_public, b"WELCOME-" + welcome_nonce, s_public + cookie)
    vouch = box(CLIENT.secret, s_public, b"VOUCH---" + vouch_nonce, c_public + SERVER.public)
    plain = CLIENT.public + vouch_nonce + vouch + DEALER
    initiate = cookie + two + box(c_secret, s_public, b"CurveZMQINITIATE" + two, plain)
    ready = one + box(s_secret, c_public, b"CurveZMQREADY---" + one, ROUTER)
    request = box(c_secret, s_public, b"CurveZMQMESSAGEC" + three, b"\x00hello")
    reply = box(s_secret, c_public, b"CurveZMQMESSAGES" + two, b"\x01" + bytes(300))
    return {
        "HELLO": command(b"HELLO", hello),
        "WELCOME": command(b"WELCOME", welcome_nonce + welcome),
        "INITIATE": command(b"INITIATE", initiate),
        "READY": command(b"READY", ready),
        "request": b"\x00\x26\x07MESSAGE" + three + request,
        "reply": b"\x02" + pack(">Q", 333) + b"\x07MESSAGE" + two + reply,
    }


GOLDEN: Final = {
    "HELLO": "ad7993fccf5ddcc64cdd85ebbb1a492559323ba3cf74025e3b4114afab9604e8",
    "WELCOME": "d304ac4db23693c4a31c5d644dd55714b34b28ce0ba0678e4d0ccfa3293f96ae",
    "INITIATE": "5da201949eb7c28bb585407a0c5ec08d6cf8b344fab3ae4a773bbb1e5f9df493",
    "READY": "95cd3ca2754197861a5c9f64ad63db187f5e22143d3eb5c7b7feb928ba7af398",
    "request": "0532a9cc361d2cf720fb67aa03df140dddb22ca6f50341f7df220f172acf98cf",
    "reply": "23e04f5d9bde852db940083b3d67aa39b5073b1a3525ddcb8070463eb789363b",
}


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return build()


def test_the_expected_bytes_are_those_that_were_saved(expected: dict[str, bytes]) -> None:
    assert {name: sha256(data).hexdigest() for name, data in expected.items()} == GOLDEN


@requirement("curve:as-server", "curve:server-key")
def test_the_greetings() -> None:
    assert client_of().opening() == GREETING + bytes(32)
    assert server_of().opening() == GREETING + b"\x01" + bytes(31)


@requirement(
    "curve:hello",
    "curve:welcome",
    "curve:cookie",
    "curve:initiate",
    "curve:vouch",
    "curve:ready",
    "curve:handshake",
)
def test_each_command_of_the_handshake(expected: dict[str, bytes]) -> None:
    client, server = client_of(), server_of()
    client.receive(server.opening())
    server.receive(client.opening())
    assert server.output() == b""
    hello = client.output()
    assert hello == expected["HELLO"]
    server.receive(hello)
    welcome = server.output()
    assert welcome == expected["WELCOME"]
    client.receive(welcome)
    initiate = client.output()
    assert initiate == expected["INITIATE"]
    assert not server.ready
    server.receive(initiate)
    assert server.ready
    ready = server.output()
    assert ready == expected["READY"]
    assert not client.ready
    client.receive(ready)
    assert client.ready
    assert client.output() == b""
    sizes = [len(expected[name]) - head for name, head in (("HELLO", 2), ("WELCOME", 2))]
    assert sizes == [200, 168]
    assert len(expected["INITIATE"]) - 9 == 257 + len(DEALER)
    assert (client.peer_credential, server.peer_credential) == (
        Credential("curve", (SERVER_PUBLIC,)),
        Credential("curve", (CLIENT_PUBLIC,)),
    )
    assert server.peer_socket_type is SocketType.DEALER


@requirement("curve:message", "curve:message-flags", "curve:client-nonces", "curve:server-nonces")
def test_a_message_in_each_direction(expected: dict[str, bytes]) -> None:
    client, server = connected()
    assert encoded(client, [b"hello"]) == expected["request"]
    assert server.receive(expected["request"]) == [[b"hello"]]
    reply = encoded(server, [bytes(300), b""])
    assert reply.startswith(expected["reply"])
    assert client.receive(reply) == [[bytes(300), b""]]


@requirement("curve:transient-keys", "curve:long-nonces")
def test_every_connection_has_new_keys_nonces_and_a_new_cookie() -> None:
    mine, theirs = Chance(b"a"), Chance(b"b")
    seen = []
    for _ in range(2):
        client, server = client_of(chance=mine), server_of(chance=theirs)
        server.receive(client.opening())
        client.receive(server.opening())
        hello = client.output()
        server.receive(hello)
        welcome = server.output()
        client.receive(welcome)
        seen.append((hello, welcome, client.output()))
    assert not {*seen[0]} & {*seen[1]}
    assert [len(each) for each in mine.drawn] == [32, 16] * 2
    assert [len(each) for each in theirs.drawn] == [32, 32, 16, 16] * 2
    assert len({*mine.drawn, *theirs.drawn}) == 12


# --- keys as text ---------------------------------------------------------------------------------
def test_z85_of_the_rfcs_example_and_of_the_keys_in_the_manual_of_libzmq() -> None:
    assert encode_z85(bytes.fromhex("864fd26fb559f75b")) == "HelloWorld"
    assert decode_z85("HelloWorld").hex() == "864fd26fb559f75b"
    assert (CLIENT.public_text, SERVER.public_text) == (CLIENT_PUBLIC, SERVER_PUBLIC)
    assert read_key(CLIENT.public, "a key") == read_key(CLIENT_PUBLIC, "a key") == CLIENT.public
    assert encode_z85(b"\xff" * 4) == "%nSc0"


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "40 characters"),
        (CLIENT_PUBLIC[:-5], "40 characters"),
        (CLIENT_PUBLIC[:-1], "multiple of 5"),
        (CLIENT_PUBLIC[:-1] + "~", "does not use"),
        (CLIENT_PUBLIC[:-5] + "#####", "above 32 bits"),
        (bytes(31), "32 bytes"),
        (bytes(33), "32 bytes"),
    ],
)
def test_a_malformed_key_is_refused_and_not_quoted(key: str | bytes, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        read_key(key, "the key of a test")
    assert CLIENT_PUBLIC[:20] not in str(caught.value)
    assert "the key of a test" in str(caught.value)


def test_only_multiples_of_four_bytes_are_encoded() -> None:
    with pytest.raises(ValueError, match="multiples of 4"):
        encode_z85(b"abc")


def test_secret_keys_are_not_shown() -> None:
    shown = "".join(
        repr(each)
        for framing in (client_of(), server_of())
        for each in (framing, framing._mechanism, framing._mechanism.own)
    )
    for pair in (CLIENT, SERVER):
        assert repr(pair.secret) not in shown
        assert encode_z85(pair.secret) not in shown
        assert pair.secret.hex() not in shown
    assert repr(CLIENT.public) in shown


def test_requests_and_replies_have_their_envelopes_inside_the_boxes() -> None:
    client, server = client_of(socket_type=SocketType.REQ), server_of(socket_type=SocketType.REP)
    to_server, to_client = client.opening(), server.opening()
    while to_server or to_client:
        server.receive(to_server)
        client.receive(to_client)
        to_server, to_client = client.output(), server.output()
    assert server.receive(encoded(client, [b"question"])) == [[b"question"]]
    assert client.receive(encoded(server, [b"answer", b"more"])) == [[b"answer", b"more"]]


def test_clear_text_shows_neither_keys_nor_metadata_nor_bodies() -> None:
    client, server = client_of(identity=b"my identity"), server_of()
    sent = b""
    to_server, to_client = client.opening(), server.opening()
    while to_server or to_client:
        sent += to_server + to_client
        server.receive(to_server)
        client.receive(to_client)
        to_server, to_client = client.output(), server.output()
    sent += encoded(client, [b"a body that nobody may read"])
    assert server.peer_identity == b"my identity"
    for secret in (b"my identity", b"Socket-Type", b"a body that", CLIENT.public, SERVER.public):
        assert secret not in sent
    assert isinstance(server, Zmtp)
