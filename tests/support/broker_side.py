"""A client or worker engine with virtual time; the test plays the broker.

    side = BrokerSide(MajordomoWorker(dialect, "echo", rng=...), dialect, "worker")
    side.start()
    side.say(WorkerRequest, b"addr", [b"hello"], 1, 0, 1, b"")
    assert side.delivered == [...]

Each connection that the engine requests opens at once, unless `refuse` is set. Connections are
numbered from 1. The bench decodes every message that the engine sends.
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
    """One engine under test, and a record of its effects.

    `commands` has the sent commands by connection, `closed` the reason for each connection that the
    engine closed.
    """

    def __init__(self, engine: Engine, dialect: Dialect, role: Literal["client", "worker"]) -> None:
        self.engine = engine
        self.dialect = dialect
        self.now = 100.0
        self.refuse = False
        self.connection = 0  # the newest one; 0: none yet
        self.closed: dict[int, str] = {}
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

    # --- inputs -----------------------------------------------------------------------------------
    def start(self) -> None:
        """Wake the engine for everything that is due at once, such as its first connection."""
        self.advance(0)

    def say(self, command: type, *fields: Any, on: int = 0) -> None:
        """Send the engine a command with these fields, by default on the newest connection."""
        message = self.dialect.encode(command(*fields))
        self.feed(Received(self._peer(on), [message]))

    def accept(self) -> None:
        """Open all requested connections, and accept new ones from now on (`refuse` = False)."""
        self.refuse = False
        while self._joins:
            self._joins -= 1
            self.connection += 1
            self.feed(PeerJoined(self.connection))

    def lose(self, on: int = 0) -> None:
        """Report that a connection was lost, by default the newest."""
        self.feed(PeerLost(self._peer(on), "reset"))

    def advance(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the engine."""
        end = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= end:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = end

    def keep_alive(self, seconds: float, command: type = WorkerHeartbeat) -> None:
        """Advance the clock while the broker sends a heartbeat every 0.5 s on the newest
        connection."""
        end = self.now + seconds
        while self.now < end:
            self.advance(0.5)
            self.say(command, 1000)

    def feed(self, event: Any) -> None:
        """Feed the engine one input, record its effects, then open the requested connections unless
        `refuse` is set."""
        for effect in self.engine.handle([event], self.now):
            self._perform(effect)
        if not self.refuse:
            self.accept()

    # --- effects ----------------------------------------------------------------------------------
    def sent(self, kind: type | None = None, on: int = 0) -> list[Any]:
        """Return the commands that the engine sent on a connection (by default the newest), all or
        of one type."""
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
