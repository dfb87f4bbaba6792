"""The handshakes of NULL and PLAIN, byte by byte (RFC 37, RFC 24)."""

import itertools
from struct import pack

import pytest
from tests.framing.logins import receive

from requite.errors import ConfigurationError, LocalViolation, RemoteViolation
from requite.framing import (
    CredentialsRefused,
    Limits,
    Null,
    PlainClient,
    PlainServer,
    RefusedByPeer,
    SocketType,
    Zmtp,
    known_users,
    same_secret,
)
from requite.principal import Credential

DEALER, ROUTER, REQ, REP = SocketType.DEALER, SocketType.ROUTER, SocketType.REQ, SocketType.REP

# The READY of the worked example in RFC 37: an anonymous DEALER.
READY_DEALER = bytes.fromhex(
    "04 29 05 52454144590b 536f636b65742d54797065 00000006 4445414c455208 4964656e74697479 00000000"
)
# The ROUTER of the same example, which omits its identity.
READY_ROUTER = bytes.fromhex("04 1c 05 5245414459 0b 536f636b65742d54797065 00000006 524f55544552")

HELLO = bytes.fromhex("04 10 05 48454c4c4f 05 61646d696e 03 736573")  # "admin", "ses"
WELCOME = bytes.fromhex("04 08 07 57454c434f4d45")
INITIATE_REQ = (
    bytes.fromhex("04 29 08 494e495449415445 0b") + b"Socket-Type\0\0\0\x03REQ\x08Identity\0\0\0\0"
)


def prop(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + pack(">I", len(value)) + value


def command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return (pack(">BB", 4, len(body)) if len(body) < 256 else pack(">BQ", 6, len(body))) + body


def ready(socket_type: bytes, *properties: bytes) -> bytes:
    return command(b"READY", prop(b"Socket-Type", socket_type) + b"".join(properties))


def greeted(socket_type: SocketType, **options: object) -> Zmtp:
    """Return a framing that has received a matching greeting; its own output so far is
    discarded."""
    framing = Zmtp(socket_type, **options)
    mechanism = options.get("mechanism", Null())
    framing.receive(Zmtp(DEALER, mechanism=mechanism).opening()[:32] + bytes(32))
    framing.output()
    return framing


def refusal(framing: Zmtp, data: bytes) -> str:
    with pytest.raises(RemoteViolation) as caught:
        receive(framing, data)
    assert not framing.ready
    return str(caught.value)


# --- NULL ---------------------------------------------------------------------------------------


def test_ready_matches_the_rfcs_example():
    framing = Zmtp(DEALER)
    framing.receive(Zmtp(ROUTER).opening())
    assert framing.output() == READY_DEALER
    assert framing.output() == b""


def test_null_handshake_both_ways():
    dealer, router = greeted(DEALER), greeted(ROUTER)
    assert dealer.receive(READY_ROUTER) == []
    assert router.receive(READY_DEALER) == []
    assert dealer.ready
    assert router.ready
    assert (dealer.peer_socket_type, router.peer_socket_type) == (ROUTER, DEALER)
    assert dealer.output() == router.output() == b""


def test_greeting_handshake_and_first_message_in_one_chunk():
    framing = Zmtp(ROUTER)
    chunk = Zmtp(DEALER).opening() + READY_DEALER + b"\x01\x01a\x00\x01b\x00\x00"
    assert framing.receive(chunk) == [[b"a", b"b"], [b""]]
    framing.at_end()


@pytest.mark.parametrize("identity", [b"a", b"tcp://127.0.0.1:5555", b"\xff\x00", b"x" * 255])
def test_identities_both_ways(shake_hands, identity):
    left, right = Zmtp(DEALER, identity=identity), Zmtp(ROUTER, identity=b"the router")
    shake_hands(left, right)
    assert right.peer_identity == identity
    assert left.peer_identity == b"the router"


@pytest.mark.parametrize("identity", [b"\0", b"\0abc", b"x" * 256])
def test_an_invalid_identity_is_refused(identity):
    with pytest.raises(LocalViolation, match="identity"):
        Zmtp(DEALER, identity=identity)
    assert "identity" in refusal(greeted(ROUTER), ready(b"DEALER", prop(b"Identity", identity)))


def test_rep_announces_no_identity_and_its_identity_is_ignored():
    framing = Zmtp(REP, identity=b"me")
    framing.receive(Zmtp(REQ).opening())
    assert framing.output() == ready(b"REP")
    req = greeted(REQ)
    req.receive(ready(b"REP", prop(b"Identity", b"\0not valid")))
    assert req.ready
    assert req.peer_identity == b""


def test_property_names_are_case_insensitive_and_unknown_ones_ignored():
    framing = greeted(ROUTER)
    framing.receive(
        command(
            b"READY",
            prop(b"X-App", b"\0\1") + prop(b"sOCKET-tYPE", b"REQ") + prop(b"IDENTITY", b"me"),
        )
    )
    assert framing.ready
    assert (framing.peer_socket_type, framing.peer_identity) == (REQ, b"me")


GOOD_PAIRS = {
    (ROUTER, DEALER),
    (ROUTER, REQ),
    (ROUTER, ROUTER),
    (DEALER, DEALER),
    (DEALER, REP),
    (REQ, REP),
}


@pytest.mark.parametrize(("own", "peer"), list(itertools.product(SocketType, SocketType)))
def test_pairs_of_socket_types(own, peer):
    framing = greeted(own)
    if (own, peer) in GOOD_PAIRS or (peer, own) in GOOD_PAIRS:
        framing.receive(ready(peer.encode()))
        assert framing.ready
    else:
        assert f"a {own} socket cannot connect to" in refusal(framing, ready(peer.encode()))
        reason = f"a-{own}-socket-cannot-connect-to-a-socket-of-type-'{peer}'".encode()
        assert framing.output() == command(b"ERROR", bytes((len(reason),)) + reason)


@pytest.mark.parametrize("socket_type", [b"PUB", b"", b"dealer", b"DEALER\0", b"\xff\xfe"])
def test_unknown_socket_types_are_refused(socket_type):
    assert "cannot connect to" in refusal(greeted(ROUTER), ready(socket_type))


def test_a_missing_socket_type_is_refused():
    assert "cannot connect to" in refusal(
        greeted(ROUTER), command(b"READY", prop(b"Identity", b""))
    )


@pytest.mark.parametrize(
    "metadata",
    [
        b"\x00\x00\x00\x00\x00",  # a name of zero characters
        prop(b"Socket-Type", b"DEALER") + b"\x00",
        prop(b"Socket-Type", b"DEALER") + b"\x08Ident",
        prop(b"Socket-Type", b"DEALER") + b"\x08Identity\x00\x00",
        prop(b"Socket-Type", b"DEALER") + b"\x08Identity\x00\x00\x00\x02x",
        prop(b"Socket-Type", b"DEALER") + b"\x08Identity\xff\xff\xff\xffx",
    ],
)
def test_malformed_metadata_is_refused(metadata):
    framing = greeted(ROUTER)
    assert "malformed metadata" in refusal(framing, command(b"READY", metadata))
    assert b"\x05ERROR" in framing.output()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x01x", "received a message before"),
        (b"\x03", "received a message before"),
        (b"\x05\x06\x05READY", "0x05"),
        (b"\x0c\x06\x05READY", "0x0c"),
        (b"\x08", "0x08"),
        (b"\x04\x00", "name"),
        (b"\x04\x01\x00", "name"),
        (b"\x04\x03\x05RE", "name"),
        (command(b"PING", b"\0\0"), "PING"),
        (command(b"HELLO", b"\0\0"), "HELLO"),
        (b"\x06" + pack(">Q", 4097), "4097 bytes; the maximum is 4096"),
        (b"\x06" + pack(">Q", 1 << 63), "the maximum is 4096"),
    ],
)
def test_a_null_handshake_accepts_only_ready(data, reason):
    framing = greeted(ROUTER)
    assert reason in refusal(framing, data)
    said = framing.output()
    assert said[:8] == bytes((4, said[1], 5)) + b"ERROR"
    assert said[8] == len(said) - 9
    assert framing.output() == b""


def test_a_long_ready_is_accepted_up_to_the_limit():
    padding = ready(b"DEALER", prop(b"X-Padding", b"x" * 500))
    framing = greeted(ROUTER, limits=Limits(handshake_size_max=len(padding) - 9))
    framing.receive(padding)
    assert framing.ready
    framing = greeted(ROUTER, limits=Limits(handshake_size_max=len(padding) - 10))
    assert "a command of" in refusal(framing, padding[:9])


def test_an_error_of_the_peer_is_raised_with_its_reason_and_not_answered():
    framing = greeted(DEALER)
    with pytest.raises(RefusedByPeer, match="Invalid-socket-type"):
        framing.receive(command(b"ERROR", b"\x13Invalid-socket-type"))
    assert framing.output() == b""


def test_the_misspelt_error_of_libzmq_is_recognized():
    framing = greeted(DEALER, mechanism=PlainClient("user", "wrong"))
    with pytest.raises(RefusedByPeer, match="400"):
        framing.receive(b"\x04\x09^RROR\x03400")
    assert framing.output() == b""


@pytest.mark.parametrize("data", [b"", b"\x05four", b"\x03four"])
def test_a_malformed_error_command_is_refused(data):
    assert "malformed ERROR" in refusal(greeted(DEALER), command(b"ERROR", data))


def test_a_reason_in_unprintable_bytes_is_escaped():
    assert r"\xff" in refusal(greeted(DEALER), command(b"ERROR", b"\x01\xff"))


def test_the_reason_of_our_error_is_visible_ascii_of_at_most_255_bytes():
    framing = greeted(ROUTER)
    refusal(framing, ready(b"\xff \n" * 100))
    said = framing.output()
    reason = said[said.index(b"ERROR") + 6 :]
    assert len(reason) == 255
    assert all(0x21 <= character <= 0x7E for character in reason)


def test_after_a_violation_every_call_repeats_it_and_nothing_is_sent():
    framing = greeted(ROUTER)
    first = refusal(framing, ready(b"PUB"))
    framing.output()
    assert refusal(framing, READY_DEALER) == first
    with pytest.raises(RemoteViolation):
        framing.at_end()
    assert framing.output() == b""


def test_nothing_is_encoded_before_the_handshake_is_complete():
    framing = greeted(DEALER)
    out = [b"before"]
    with pytest.raises(LocalViolation, match="before the handshake"):
        framing.encode([b"x"], out)
    assert out == [b"before"]


# --- PLAIN --------------------------------------------------------------------------------------


def test_golden_bytes_of_a_plain_client():
    framing = Zmtp(REQ, mechanism=PlainClient("admin", "ses"))
    framing.receive(Zmtp(ROUTER, mechanism=PlainServer(known_users({}))).opening())
    assert framing.output() == HELLO
    framing.receive(WELCOME)
    assert framing.output() == INITIATE_REQ
    assert not framing.ready
    framing.receive(READY_ROUTER)
    assert framing.ready
    assert framing.output() == b""


def test_golden_bytes_of_a_plain_server():
    framing = Zmtp(ROUTER, mechanism=PlainServer(known_users({"admin": "ses"})))
    framing.receive(Zmtp(REQ, mechanism=PlainClient("", "")).opening())
    assert framing.output() == b""  # the client sends first
    receive(framing, HELLO)
    assert framing.output() == WELCOME
    framing.receive(INITIATE_REQ)
    assert framing.output() == ready(b"ROUTER", prop(b"Identity", b""))
    assert framing.ready
    assert framing.peer_socket_type is REQ


def test_a_plain_server_replaces_ready_by_error_for_a_wrong_socket_type():
    framing = greeted(ROUTER, mechanism=PlainServer(known_users({"admin": "ses"})))
    receive(framing, HELLO)
    framing.output()
    refusal(framing, INITIATE_REQ.replace(b"\x03REQ", b"\x03REP"))
    said = framing.output()
    assert b"ERROR" in said
    assert b"READY" not in said


@pytest.mark.parametrize(
    ("username", "password"), [("admin", "sesam"), ("admin", ""), ("Admin", "ses"), ("", "")]
)
def test_wrong_credentials_are_refused_with_the_status_of_zap(username, password):
    server = greeted(ROUTER, mechanism=PlainServer(known_users({"admin": "ses"})))
    client = Zmtp(DEALER, mechanism=PlainClient(username, password))
    client.receive(server.opening())
    with pytest.raises(CredentialsRefused, match=f"user {username!r}.*`--credentials-file`"):
        receive(server, client.output())
    answer = server.output()
    assert answer == b"\x04\x0a\x05ERROR\x03400"
    with pytest.raises(RefusedByPeer, match=f"name or password of {username!r}.*400.*`--cred"):
        client.receive(answer)
    assert client.refusal
    assert client.output() == b""


def test_another_reason_does_not_count_as_refused_credentials():
    client = greeted(DEALER, mechanism=PlainClient("admin", "ses"))
    with pytest.raises(RefusedByPeer, match="the peer refused the handshake: 300"):
        client.receive(command(b"ERROR", b"\x03300"))
    assert client.refusal == ""


def test_credentials_in_utf_8_and_of_255_bytes(shake_hands):
    seen = []

    def check(username: str, password: str) -> Credential:
        seen.append((username, password))
        return Credential("plain", (username,))

    client = PlainClient("jürgen", "p" * 255)
    shake_hands(Zmtp(ROUTER, mechanism=PlainServer(check)), Zmtp(DEALER, mechanism=client))
    assert seen == [("jürgen", "p" * 255)]


@pytest.mark.parametrize("credentials", [("u" * 256, ""), ("", "ü" * 128)])
def test_credentials_over_255_bytes_are_refused_locally(credentials):
    with pytest.raises(LocalViolation, match="255"):
        PlainClient(*credentials)


def test_a_password_is_not_shown():
    assert "sesam" not in repr(PlainClient("admin", "sesam"))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x05admi", b"\x05admin", b"\x05admin\x03se", b"\x05admin\x03ses\x00", b"\x00", b"\xff"],
)
def test_malformed_hello_is_refused(data):
    framing = greeted(ROUTER, mechanism=PlainServer(known_users({"admin": "ses"})))
    assert "malformed HELLO" in refusal(framing, command(b"HELLO", data))
    assert b"ERROR" in framing.output()


def test_credentials_that_are_not_utf_8_are_refused():
    framing = greeted(ROUTER, mechanism=PlainServer(known_users({})))
    assert "UTF-8" in refusal(framing, command(b"HELLO", b"\x01\xff\x00"))
    assert framing.output() == b"\x04\x0a\x05ERROR\x03400"


@pytest.mark.parametrize(
    ("mechanism", "data"),
    [
        (PlainClient("a", "b"), READY_ROUTER),
        (PlainClient("a", "b"), HELLO),  # two clients
        (PlainClient("a", "b"), command(b"WELCOME", b"x")),
        (PlainServer(known_users({})), READY_DEALER),
        (PlainServer(known_users({})), INITIATE_REQ),
        (PlainServer(known_users({"admin": "ses"})), HELLO + HELLO),
    ],
)
def test_commands_in_the_wrong_order_are_refused(mechanism, data):
    assert refusal(greeted(ROUTER, mechanism=mechanism), data)


def test_a_handshake_waits_for_the_check_of_its_password():
    """It keeps what the peer sends meanwhile, and does not answer."""
    framing = greeted(ROUTER, mechanism=PlainServer(known_users({"admin": "ses"})))
    framing.receive(HELLO)
    login = framing.login
    assert (login.user, login.password) == ("admin", "ses")
    assert "ses" not in repr(login)
    framing.receive(INITIATE_REQ)
    assert framing.output() == b""
    assert framing.login is login
    login.check_now()
    framing.receive(b"")
    assert framing.login is None
    assert framing.ready
    assert framing.output().startswith(WELCOME)
    assert framing.peer_credential == Credential("plain", ("admin",))


def test_same_secret_compares_texts():
    assert same_secret("sesäm", "sesäm")
    assert not same_secret("sesäm", "sesam")
    assert not same_secret("", "sesam")


def test_known_users_copies_its_table_and_refuses_unknown_users():
    passwords = {"admin": "ses"}
    check = known_users(passwords)
    passwords["eve"] = "eve"
    assert check("admin", "ses")
    assert not check("eve", "eve")
    assert not check("nobody", "")


@pytest.mark.parametrize("users", [{"admin": ""}, {"": "ses"}])
def test_known_users_refuses_empty_names_and_passwords(users):
    with pytest.raises(ConfigurationError, match="is empty"):
        known_users(users)
