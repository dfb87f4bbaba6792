"""An operator's side of the link: one request at a time to one server of a pair.

Source: docs/protocols/binary-star.md, "Operators".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from requite.engine import (
    Cause,
    Deliver,
    Disconnect,
    Effect,
    Input,
    Peer,
    PeerJoined,
    PeerLost,
    Received,
    Send,
)
from requite.errors import RemoteViolation
from requite.protocols.binarystar.wire import Ask, Refused, Switch, View, decode, encode

ANSWER: Final = "answer"
"""The token of delivered `View` and `Refused` answers."""


class BinaryStarOperator:
    """The engine. `Ask` and `Switch` are its inputs. The last one is sent again on each new
    connection until it is answered: it may have been lost on the previous one."""

    def __init__(self) -> None:
        self._peer: Peer | None = None
        self._question: Ask | Switch | None = None

    def handle(self, events: Sequence[Input], _now: float) -> Iterable[Effect]:
        """See `requite.engine.Engine.handle`."""
        return [effect for event in events for effect in self._take_input(event)]

    def _take_input(self, event: Input) -> Iterable[Effect]:
        match event:
            case Ask() | Switch():
                self._question = event
                return self._put()
            case PeerJoined(peer):
                self._peer = peer
                return self._put()
            case PeerLost():
                self._peer = None
            case Received(peer, messages):
                return [effect for message in messages for effect in self._take(peer, message)]
        return ()

    def deadline(self) -> float | None:
        """See `requite.engine.Engine.deadline`; the caller times requests out, not the engine."""
        return None

    def snapshot(self) -> bool:
        """Return whether there is a connection."""
        return self._peer is not None

    def _put(self) -> list[Effect]:
        if self._peer is None or self._question is None:
            return []
        return [Send(self._peer, encode(self._question))]

    def _take(self, peer: Peer, message: list[bytes]) -> list[Effect]:
        try:
            answer = decode(message)
        except RemoteViolation as violation:
            return [Disconnect(peer, str(violation), Cause.FAULTY)]
        if not isinstance(answer, View | Refused):
            return []
        self._question = None
        return [Deliver(ANSWER, answer)]
