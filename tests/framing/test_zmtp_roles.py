"""The envelopes that REQ and REP add to messages (RFC 28); DEALER and ROUTER add none."""

import pytest

from requite.errors import LocalViolation, RemoteViolation
from requite.framing import SocketType, Zmtp

DEALER, ROUTER, REQ, REP = SocketType.DEALER, SocketType.ROUTER, SocketType.REQ, SocketType.REP


def wire(framing: Zmtp, *messages: list[bytes]) -> bytes:
    out: list[bytes] = []
    assert sum(framing.encode(message, out) for message in messages) == sum(map(len, out))
    return b"".join(out)


@pytest.mark.parametrize(("own", "peer"), [(DEALER, ROUTER), (ROUTER, DEALER), (ROUTER, ROUTER)])
def test_dealer_and_router_do_not_change_frames(connect, own, peer):
    left, right = connect(own, peer)
    assert right.receive(wire(left, [b"", b"a"], [b"\0", b""])) == [[b"", b"a"], [b"\0", b""]]


def test_req_adds_and_removes_the_delimiter(connect):
    req, router = connect(REQ, ROUTER)
    message = [b"a", b""]
    assert wire(req, message) == b"\x01\x00\x01\x01a\x00\x00"
    assert message == [b"a", b""]
    assert req.receive(b"\x01\x00\x01\x01b\x00\x00") == [[b"b", b""]]
    assert router.receive(wire(req, message)) == [[b"", b"a", b""]]


@pytest.mark.parametrize("data", [b"\x00\x01a", b"\x00\x00", b"\x01\x01a\x00\x00"])
def test_req_requires_the_delimiter_and_a_frame_after_it(connect, data):
    req, _ = connect(REQ, ROUTER)
    with pytest.raises(RemoteViolation, match="delimiter"):
        req.receive(data)
    with pytest.raises(RemoteViolation, match="delimiter"):
        req.receive(b"\x01\x00\x00\x01a")


def test_rep_stores_the_envelope_for_the_reply(connect):
    rep, dealer = connect(REP, DEALER)
    assert rep.receive(wire(dealer, [b"id1", b"id2", b"", b"body", b"", b"more"])) == [
        [b"body", b"", b"more"]
    ]
    assert dealer.receive(wire(rep, [b"reply"])) == [[b"id1", b"id2", b"", b"reply"]]


def test_rep_sends_replies_in_the_order_of_the_requests(connect):
    rep, dealer = connect(REP, DEALER)
    requests = wire(dealer, [b"1", b"", b"a"], [b"", b"b"], [b"3", b"", b"c"])
    assert rep.receive(requests) == [[b"a"], [b"b"], [b"c"]]
    replies = dealer.receive(wire(rep, [b"A"], [b"B"], [b"C"]))
    assert replies == [[b"1", b"", b"A"], [b"", b"B"], [b"3", b"", b"C"]]


def test_rep_sends_nothing_but_replies(connect):
    rep, req = connect(REP, REQ)
    out: list[bytes] = []
    with pytest.raises(LocalViolation, match="no request is open"):
        rep.encode([b"x"], out)
    rep.receive(wire(req, [b"one"]))
    rep.encode([b"x"], out)
    before = list(out)
    with pytest.raises(LocalViolation, match="no request is open"):
        rep.encode([b"x"], out)
    assert out == before


@pytest.mark.parametrize("data", [b"\x00\x01a", b"\x00\x00", b"\x01\x01a\x00\x00"])
def test_rep_requires_the_delimiter_and_a_frame_after_it(connect, data):
    rep, _ = connect(REP, DEALER)
    with pytest.raises(RemoteViolation, match="delimiter"):
        rep.receive(data)


@pytest.mark.parametrize(("own", "peer"), [(REQ, REP), (REP, REQ)])
def test_a_message_without_frames_is_refused_and_leaves_the_request_open(connect, own, peer):
    left, right = connect(own, peer)
    if own is REP:
        left.receive(wire(right, [b"x"]))
    out: list[bytes] = []
    with pytest.raises(LocalViolation, match="at least one frame"):
        left.encode([], out)
    assert out == []
    assert left.encode([b"y"], out) == 5


def test_req_and_rep_together(connect):
    req, rep = connect(REQ, REP)
    for body in (b"", b"x" * 300, b"last"):
        assert rep.receive(wire(req, [body, b"?"])) == [[body, b"?"]]
        assert req.receive(wire(rep, [body, b"!"])) == [[body, b"!"]]
