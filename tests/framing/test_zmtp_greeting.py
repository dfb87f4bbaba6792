"""The ZMTP greeting: 64 golden bytes, in any chunks (RFC 37, Formal Grammar)."""

import pytest

from requite.errors import RemoteViolation
from requite.framing import (
    Null,
    PlainClient,
    PlainServer,
    SocketType,
    Zmtp,
    mechanism_to_check,
    mechanism_to_show,
)
from requite.principal import Credential

SIGNATURE = bytes.fromhex("ff 0000000000000000 7f")
FILLER = bytes(31)
NULL = b"NULL" + bytes(16)
PLAIN = b"PLAIN" + bytes(15)
GREETING = SIGNATURE + b"\x03\x01" + NULL + b"\0" + FILLER


def accept_anyone(username: str, password: str) -> Credential:
    return Credential("plain", (username,))


@pytest.mark.parametrize(
    ("mechanism", "rest"),
    [
        (Null(), NULL + b"\0"),
        (PlainClient("user", "secret"), PLAIN + b"\0"),
        (PlainServer(accept_anyone), PLAIN + b"\1"),
    ],
)
def test_opening_is_the_complete_greeting(mechanism, rest):
    opening = Zmtp(SocketType.DEALER, mechanism=mechanism).opening()
    assert opening == SIGNATURE + b"\x03\x01" + rest + FILLER
    assert len(opening) == 64


def test_nothing_is_sent_before_the_peers_greeting_is_complete():
    framing = Zmtp(SocketType.DEALER)
    for byte in GREETING[:-1]:
        assert framing.receive(bytes((byte,))) == []
        assert framing.output() == b""
    framing.receive(GREETING[-1:])
    assert framing.output().startswith(b"\x04\x29\x05READY")


def test_the_first_eleven_bytes_may_arrive_alone_and_padding_is_ignored():
    # libzmq announces the length of its identity in the padding, for peers of ZMTP 1.0.
    framing = Zmtp(SocketType.DEALER)
    framing.receive(bytes.fromhex("ff 0000000000000009 7f 03"))
    framing.receive(GREETING[11:])
    assert framing.output().startswith(b"\x04\x29\x05READY")


@pytest.mark.parametrize(
    "version", [b"\x03\x00", b"\x03\x01", b"\x03\x02", b"\x04\x00", b"\xff\x07"]
)
def test_equal_and_higher_versions_are_accepted(version):
    framing = Zmtp(SocketType.DEALER)
    framing.receive(SIGNATURE + version + GREETING[12:])
    assert framing.output()


@pytest.mark.parametrize(
    ("beginning", "reason"),
    [
        (b"g", "first byte is 0x67"),
        (b"GEX", "first byte is 0x47"),
        (b"GET /status HTTP/1.1\r\n", "first bytes are those of an HTTP request"),
        (b"HTTP/1.1 400 Bad Request\r\n", "first bytes are those of an HTTP response"),
        (b"\x15\x03\x03\x00\x02", "those of TLS"),
        (b"\x16\x03\x01\x02\x00", r"those of TLS \(use mdp\+tls://"),
        (b"\0SP\0\0\x30\0\0", r"those of SP of nng or nanomsg \(use sp\+tcp://"),
        (b"AMQP\0\0\x09\x01", "those of AMQP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "those of SSH"),
        (b"\x01\x00", "those of ZMTP 1.0"),  # an anonymous peer
        (SIGNATURE[:-1] + b"\x00", "signature"),
        (SIGNATURE + b"\x00", "revision 0; at least 3.0"),
        (SIGNATURE + b"\x01", "revision 1; at least 3.0"),
        (SIGNATURE + b"\x02", r"revision 2; at least 3.0 \(libzmq 4.0\) is required"),
    ],
)
def test_an_invalid_greeting_is_refused_at_its_first_wrong_byte(beginning, reason):
    for chunks in ([beginning], [bytes((byte,)) for byte in beginning]):
        framing = Zmtp(SocketType.DEALER)
        with pytest.raises(RemoteViolation, match=reason):
            any(map(framing.receive, chunks))
        assert framing.output() == b""  # the peer would not understand an ERROR command


@pytest.mark.parametrize("announced", [b"GSSAPI" + bytes(14), b"NUL" + bytes(17), NULL[:-1] + b"X"])
def test_another_mechanism_is_refused(announced):
    framing = Zmtp(SocketType.DEALER)
    with pytest.raises(RemoteViolation, match="mechanism"):
        framing.receive(SIGNATURE + b"\x03\x01" + announced + b"\0" + FILLER)


def test_a_password_is_not_sent_to_a_peer_without_plain():
    framing = Zmtp(SocketType.DEALER, mechanism=PlainClient("user", "secret"))
    with pytest.raises(RemoteViolation, match="does not use credentials"):
        framing.receive(GREETING)
    assert framing.output() == b""


OPTION = "`--credentials-file`"


@pytest.mark.parametrize(
    ("ours", "theirs", "told"),
    [
        (
            mechanism_to_show(None, None),
            PLAIN,
            ("the broker requires a user name and password", OPTION, "mdp://USER:PASSWORD@HOST"),
        ),
        (
            mechanism_to_show("ann", "secret"),
            NULL,
            (
                "the broker does not use credentials",
                "'ann'",
                OPTION,
                "the URL's USER:PASSWORD",
            ),
        ),
        (
            mechanism_to_check(None),
            PLAIN,
            ("the peer sends a user name and password", "this broker has no users", OPTION),
        ),
        (
            mechanism_to_check({"ann": "secret"}),
            NULL,
            ("this broker requires a user name and password", OPTION, "in its URL"),
        ),
        (Null(), PLAIN, ("user names and passwords (ZMTP PLAIN), but this side has none",)),
        (Null(), b"GSSAPI" + bytes(14), ("GSSAPI", "this side uses NULL (no credentials)")),
        (Null(), b"CURVE" + bytes(15), ("keys (ZMTP CURVE), but this side has none",)),
        (mechanism_to_check({}), b"CURVE" + bytes(15), ("this side uses PLAIN (user name and",)),
    ],
)
def test_errors_of_missing_or_unwanted_credentials_are_for_users(ours, theirs, told):
    framing = Zmtp(SocketType.DEALER, mechanism=ours)
    with pytest.raises(RemoteViolation) as caught:
        framing.receive(SIGNATURE + b"\x03\x01" + theirs + b"\0" + FILLER)
    text = str(caught.value)
    assert [words for words in told if words not in text] == []
    assert "b'" not in text
    assert "secret" not in text
    assert framing.refusal == text


def test_two_servers_are_refused():
    framing = Zmtp(SocketType.ROUTER, mechanism=PlainServer(accept_anyone))
    with pytest.raises(RemoteViolation, match="both sides"):
        framing.receive(SIGNATURE + b"\x03\x01" + PLAIN + b"\1" + FILLER)


@pytest.mark.parametrize("cut", [0, 1, 10, 11, 63, 64])
def test_end_of_stream_during_the_greeting_is_refused(cut):
    framing = Zmtp(SocketType.DEALER)
    framing.receive(GREETING[:cut])
    with pytest.raises(RemoteViolation, match="during the handshake"):
        framing.at_end()
