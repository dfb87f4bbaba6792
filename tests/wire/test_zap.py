"""The messages of ZAP (27/ZAP): golden bytes of requests, and replies of every kind."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.spec.requirement import requirement

from requite.access.authentication import Authentication
from requite.errors import RemoteViolation
from requite.framing import SocketType, Zmtp
from requite.framing.z85 import decode_z85
from requite.principal import Credential
from requite.zap.wire import STATUSES, Verdict, decode_reply, encode_request

KEY = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"  # of 25/ZMTP-CURVE
ID = b"0001"
GOOD = [b"1.0", ID, b"200", b"OK", b"joe", b""]


def peer(
    credential: Credential | None = None,
    address: str = "tcp://192.168.55.1:40022",
    identity: bytes = b"BOB",
) -> Authentication:
    return Authentication("joe", credential, address, identity)


def on_the_wire(message: list[bytes]) -> bytes:
    """Return what a REQ socket sends."""
    left, right = Zmtp(SocketType.REQ), Zmtp(SocketType.REP)
    right.receive(left.opening())
    left.receive(right.opening() + right.output())
    right.receive(left.output())
    out: list[bytes] = []
    left.encode(message, out)
    return b"".join(out)


# --- requests -------------------------------------------------------------------------------------
BEGINNING = (
    b"\x01\x00"  # the delimiter
    b"\x01\x031.0"
    b"\x01\x040001"
    b"\x01\x04test"
    b"\x01\x0c192.168.55.1"
    b"\x01\x03BOB"
)


@requirement("zap:request", "zap:null", "zap:delimiter", "zap:mechanism")
def test_a_request_about_a_peer_without_credentials() -> None:
    """The example of the document."""
    assert on_the_wire(encode_request(peer(), "test", ID)) == BEGINNING + b"\x00\x04NULL"


@requirement("zap:plain")
def test_a_request_about_a_user_has_no_password() -> None:
    request = encode_request(peer(Credential("plain", ("joe",))), "test", ID)
    assert on_the_wire(request) == BEGINNING + b"\x01\x05PLAIN\x01\x03joe\x00\x00"


@requirement("zap:curve")
def test_a_request_about_a_key() -> None:
    request = encode_request(peer(Credential("curve", (KEY,))), "test", ID)
    key = bytes.fromhex("bb88471d65e2659b30c55a5321cebb5aab2b70a398645c26dca2b2fcb43fc518")
    assert decode_z85(KEY) == key
    assert on_the_wire(request) == BEGINNING + b"\x01\x05CURVE\x00\x20" + key


def test_requests_about_certificates_and_unix_sockets() -> None:
    certificate = Credential("tls", ("CN=joe,O=Käse", "CN=joe", "sha256:ab"))
    assert encode_request(peer(certificate), "test", ID)[5:] == [
        b"TLS",
        "CN=joe,O=Käse".encode(),
        b"CN=joe",
        b"sha256:ab",
    ]
    local = peer(Credential("local", ("1000",)), "ipc:///run/socket", b"")
    assert encode_request(local, "test", ID)[3:] == [b"", b"", b"LOCAL", b"1000"]


@requirement("zap:address")
@pytest.mark.parametrize(
    ("address", "sent"),
    [
        ("tcp://10.0.0.1:5", b"10.0.0.1"),
        ("tls://[2001:DB8:0:0::1]:5", b"2001:db8::1"),
        ("tcp://[fe80::1%eth0]:5", b"fe80::1"),
        ("ws://127.0.0.1:5", b"127.0.0.1"),
        ("ipc:///run/socket", b""),
        ("inproc://titanic", b""),
        ("tcp://[", b""),
        ("", b""),
    ],
)
def test_the_address_is_that_of_the_network(address: str, sent: bytes) -> None:
    assert encode_request(peer(address=address), "test", ID)[3] == sent


@requirement("zap:identity")
@pytest.mark.parametrize("identity", [b"", b"\xff" * 255])
def test_the_identity_is_any_bytes(identity: bytes) -> None:
    assert encode_request(peer(identity=identity), "test", ID)[4] == identity


# --- replies --------------------------------------------------------------------------------------
@requirement("zap:reply", "zap:status")
@pytest.mark.parametrize("status", sorted(STATUSES))
def test_a_reply_with_each_status(status: str) -> None:
    reply = [b"1.0", ID, status.encode(), b"because", b"", b""]
    assert decode_reply(reply, ID) == Verdict(status, "because")


@requirement("zap:metadata")
def test_a_reply_with_metadata() -> None:
    assert decode_reply([*GOOD[:5], b"\x04Role\0\0\0\x03ops"], ID) == ("200", "OK")


def changed(at: int, frame: bytes) -> list[bytes]:
    return [*GOOD[:at], frame, *GOOD[at + 1 :]]


@requirement("zap:reply", "zap:request-id", "zap:strings", "zap:status", "zap:metadata")
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ([], "it has 0 frames"),
        (GOOD[:5], "it has 5 frames"),
        ([*GOOD, b""], "it has 7 frames"),
        ([b"", *GOOD], "it has 7 frames"),
        (changed(0, b"1.1"), "its version is b'1.1'"),
        (changed(0, b""), "its version is b''"),
        (changed(1, b"0002"), "the id of another request"),
        (changed(1, b""), "the id of another request"),
        (changed(2, b""), "the unknown status ''"),
        (changed(2, b"2"), "the unknown status '2'"),
        (changed(2, b"0200"), "the unknown status '0200'"),
        (changed(2, b"200\0"), "the unknown status"),
        (changed(2, "\uff12\uff10\uff10".encode()), "not ASCII"),
        (changed(3, b"\xff"), "not ASCII"),
        (changed(3, b"x" * 256), "longer than 255"),
        (changed(4, "joé".encode()), "not ASCII"),
        (changed(5, b"\x04Role\0\0\0\x04ops"), "malformed metadata"),
        (changed(5, b"\0"), "malformed metadata"),
    ],
)
def test_a_malformed_reply_is_refused(reply: list[bytes], why: str) -> None:
    with pytest.raises(RemoteViolation, match=why):
        decode_reply(reply, ID)


FRAMES = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"1.0", ID, b"200", b"300", b"400", b"500", b"", b"\x01a\0\0\0\0"]),
)


@given(st.lists(FRAMES, max_size=8))
@example(GOOD)
def test_any_frames_are_a_verdict_or_a_violation(frames: list[bytes]) -> None:
    try:
        status, text = decode_reply(frames, ID)
    except RemoteViolation:
        return
    assert frames[:2] == [b"1.0", ID]
    assert [status.encode(), text.encode()] == frames[2:4]
    assert status in STATUSES


@given(st.integers(0, 5), st.binary(max_size=300))
@example(2, b"400")
def test_a_good_reply_with_another_frame_never_admits_by_mistake(at: int, frame: bytes) -> None:
    """Only the user's texts may change without changing the verdict."""
    try:
        status, _ = decode_reply(changed(at, frame), ID)
    except RemoteViolation:
        return
    assert at in (3, 4, 5) or frame == GOOD[at] or status != "200"
