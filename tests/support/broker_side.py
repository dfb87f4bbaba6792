"""A client or worker engine with virtual time, seen from the broker's side of its connections.

    side = BrokerSide(MajordomoWorker(dialect, "echo", rng=...), dialect, "worker")
    side.start()
    side.say(WorkerRequest, b"addr", [b"hello"], 1, 0, 1, b"")
    assert side.delivered == [...]

Whenever the engine asks for a connection it gets one at once, unless `refuse` is set. Connections
are numbered from 1; every message the engine sends is decoded on the spot.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

from requite.engine import (
    CancelHandler,
    Connect,
    Deliver,
    Disconnect,
    Effect,
    Engine,
    Fail,
    Note,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Wake,
    Warn,
)
from requite.protocols.majordomo.wire import Dialect, WorkerHeartbeat


class BrokerSide:
    """One engine under test, and what it has done."""

    def __init__(self, engine: Engine, dialect: Dialect, role: Literal["client", "worker"]) -> None:
        self.engine = engine
        self.dialect = dialect
        self.now = 100.0
        self.refuse = False
        self.connection = 0  # the newest one
        self.closed: dict[int, str] = {}  # by the engine
        self.commands: dict[int, list[Any]] = defaultdict(list)
        self.delivered: list[tuple[Any, Any]] = []
        self.failed: list[tuple[Any, Exception]] = []
        self.abandoned: list[Any] = []
        self.warnings: list[Warn] = []
        self.stopped = False
        self._joins = 0
        self._decode = (
            dialect.decode_from_client if role == "client" else dialect.decode_from_worker
        )

    # --- what happens to the engine ---------------------------------------------------------------
    def start(self) -> None:
        """Let the engine do what it wants to do at once."""
        self.advance(0)

    def say(self, command: type, *fields: Any, on: int = 0) -> None:
        """Let the broker send a command with these fields, by default on the newest connection."""
        message = self.dialect.encode(command(*fields))
        self.feed(Received(self._peer(on), [message]))

    def accept(self) -> None:
        """Let every connection stand that was asked for, and refuse none from now on."""
        self.refuse = False
        while self._joins:
            self._joins -= 1
            self.connection += 1
            self.feed(PeerJoined(self.connection))

    def lose(self, on: int = 0) -> None:
        """Cut a connection, by default the newest."""
        self.feed(PeerLost(self._peer(on), "reset"))

    def advance(self, seconds: float) -> None:
        """Let time pass, with a wake-up at each instant the engine asks for."""
        end = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def keep_alive(self, seconds: float, command: type = WorkerHeartbeat) -> None:
        """Let time pass while the broker sends heartbeats on the newest connection."""
        end = self.now + seconds
        while self.now < end:
            self.advance(0.5)
            self.say(command, 1000)

    def feed(self, event: Any) -> None:
        """Feed the engine one input and do what it asks for; then let new connections stand."""
        for effect in self.engine.handle([event], self.now):
            self._perform(effect)
        if not self.refuse:
            self.accept()

    # --- what came of it --------------------------------------------------------------------------
    def sent(self, kind: type | None = None, on: int = 0) -> list[Any]:
        """Return the commands the engine sent on a connection, all or of one kind."""
        commands = self.commands[on or self.connection]
        return [c for c in commands if kind is None or isinstance(c, kind)]

    def _peer(self, number: int) -> int:
        return number or self.connection

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                assert peer not in self.closed, f"sent on a connection it had closed: {message}"
                self.commands[int(str(peer))].append(self._decode(list(message)))
            case Connect():
                self._joins += 1
            case Disconnect(peer, reason):
                self.closed[int(str(peer))] = reason
            case Deliver(token, what):
                self.delivered.append((token, what))
            case Fail(token, error):
                self.failed.append((token, error))
            case CancelHandler(token, _reason):
                self.abandoned.append(token)
            case Warn():
                self.warnings.append(effect)
            case Note():
                pass
            case Stopped():
                self.stopped = True
