"""The engine of an operator's connection: when it sends its request, and what it accepts as an
answer."""

from __future__ import annotations

from requite.engine import Deliver, Disconnect, PeerJoined, PeerLost, Received, Send
from requite.protocols.binarystar.operator import ANSWER, BinaryStarOperator
from requite.protocols.binarystar.wire import Ask, Refused, Switch, encode


def test_a_request_waits_for_a_connection_and_is_resent_on_the_next_one() -> None:
    operator = BinaryStarOperator()
    assert not list(operator.handle([Switch(3)], 0.0))
    for link in ("first", "second"):
        assert list(operator.handle([PeerJoined(link, b"")], 0.0)) == [
            Send(link, encode(Switch(3)))
        ]
        assert operator.snapshot()
        assert not list(operator.handle([PeerLost(link)], 0.0))
        assert not operator.snapshot()
    assert operator.deadline() is None


def test_an_answered_request_is_not_resent() -> None:
    """The peer would refuse a second switch, and the refusal would be taken for the next answer."""
    operator = BinaryStarOperator()
    operator.handle([PeerJoined("first", b"")], 0.0)
    operator.handle([Switch(3)], 0.0)
    refused = Refused("no")
    told = list(operator.handle([Received("first", [encode(refused)])], 0.0))
    assert told == [Deliver(ANSWER, refused)]
    operator.handle([PeerLost("first")], 0.0)
    assert not list(operator.handle([PeerJoined("second", b"")], 0.0))


def test_other_messages_are_ignored_and_malformed_ones_close_the_connection() -> None:
    operator = BinaryStarOperator()
    operator.handle([PeerJoined("first", b"")], 0.0)
    assert not list(operator.handle([Received("first", [encode(Ask())])], 0.0))
    (effect,) = operator.handle([Received("first", [[b"garbage"]])], 0.0)
    assert isinstance(effect, Disconnect)
