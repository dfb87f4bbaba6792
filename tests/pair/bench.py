"""A single server of a pair, with the test in place of its peer, clients, operator and clock."""

from __future__ import annotations

from typing import Any

from requite.engine import (
    Deliver,
    Disconnect,
    Drain,
    Effect,
    Note,
    PeerJoined,
    PeerLost,
    Received,
    Send,
    Stopped,
    Wake,
    Warn,
)
from requite.protocols.binarystar.peer import DIALLED, BinaryStarPeer
from requite.protocols.binarystar.policy import BinaryStarPolicy
from requite.protocols.binarystar.table import PairRole, State
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote
from requite.protocols.binarystar.wire import Command, Word, decode, encode

OWN_INSTANCE = 1
PEERS_INSTANCE = 2
TURN_S = 0.25


class Bench:
    """A server with a heartbeat interval of one second, and its effects in order: `sent` (messages
    by connection), `views`, `warnings`, `closed` (connections) and `notes`."""

    def __init__(self, role: PairRole = PairRole.PRIMARY, **policy: Any) -> None:
        self.now = 1000.0
        self.engine = BinaryStarPeer(BinaryStarPolicy(role, **policy), instance=OWN_INSTANCE)
        self.sent: dict[str, list[Command]] = {}
        self.views: list[PairView] = []
        self.warnings: list[str] = []
        self.closed: list[str] = []
        self.notes: list[Note] = []
        self.stopped = False
        self.numbers = 0
        self.instance = PEERS_INSTANCE
        self.feed(Wake())

    # --- inputs -----------------------------------------------------------------------------------
    def feed(self, event: Any) -> None:
        """Feed one input, and sort its effects into the lists."""
        for effect in self.engine.handle([event], self.now):
            self._sort(effect)

    def join(self, link: str = "peer", *, dialled: bool = True) -> None:
        """Open a connection."""
        self.sent[link] = []
        self.feed(PeerJoined(link, b"", DIALLED if dialled else None))

    def lose(self, link: str = "peer") -> None:
        """Close a connection."""
        self.feed(PeerLost(link))

    def receive_heartbeat(
        self, state: State, epoch: int = 0, *, link: str = "peer", answers: int = 0, **rest: Any
    ) -> None:
        """Receive a heartbeat of the peer. `answers`: the number of the server's heartbeat that it
        acknowledges, 0 for none."""
        self.numbers += 1
        given: dict[str, Any] = {
            "role": self.engine.policy.role.other,
            "state": state,
            "wants_answer": False,
            "interval_ms": 1000,
            "epoch": epoch,
            "instance": self.instance,
            "number": self.numbers,
            "heard_instance": OWN_INSTANCE if answers else 0,
            "heard": answers,
        }
        self.receive(Word(**given | rest), link)

    def receive(self, command: Command, link: str = "peer") -> None:
        """Receive a message over a connection."""
        self.feed(Received(link, [encode(command)]))

    def advance(self, seconds: float) -> None:
        """Advance the clock, with a `Wake` at each deadline of the engine."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = until

    def pause(self, seconds: float) -> None:
        """Advance the clock without a `Wake`, as if the process were paused."""
        self.now += seconds

    def vote(self) -> bool:
        """Submit a client's request; return whether the server may answer it."""
        self.feed(Vote())
        return self.serves

    def switch(self) -> None:
        """Switch the active server, as a local operator."""
        self.feed(SwitchOver())

    def drain(self) -> None:
        """Drain the server."""
        self.feed(Drain())

    # --- state ------------------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether the server may answer a client now."""
        return self.now < self.engine.serves_until

    @property
    def state(self) -> State:
        """The state of the engine."""
        return self.engine.state

    @property
    def epoch(self) -> int:
        """The epoch of the engine."""
        return self.engine.epoch

    def heartbeats(self, link: str = "peer") -> list[Word]:
        """Remove and return the heartbeats that the server has sent over a connection."""
        words = [command for command in self.sent[link] if isinstance(command, Word)]
        self.sent[link] = [command for command in self.sent[link] if not isinstance(command, Word)]
        return words

    def last_heartbeat(self, link: str = "peer") -> Word:
        """Remove the heartbeats that the server has sent over a connection; return the newest."""
        return self.heartbeats(link)[-1]

    def bring_into(self, state: State, epoch: int | None = None) -> None:
        """Bring the server into a state by messages of its peer. `epoch` defaults to the first
        possible."""
        self.join()
        own, other = (1, 2) if self.engine.policy.role is PairRole.PRIMARY else (2, 1)
        match state:
            case State.PRIMARY | State.BACKUP:
                assert self.state is state
            case State.PASSIVE:
                self.receive_heartbeat(State.ACTIVE, other if epoch is None else epoch)
            case State.ACTIVE | State.SUSPENDED | State.RESIGNED:
                self.receive_heartbeat(
                    State.RESIGNED, max(0, (own if epoch is None else epoch) - 1)
                )
                self.receive_heartbeat(State.PASSIVE, self.epoch - 1)
            case State.FAILED:
                self.receive_heartbeat(State.PRIMARY, role=self.engine.policy.role)
                self.join()
        if state is State.SUSPENDED:
            self.pause(5.0)
            self.feed(Wake())
        elif state is State.RESIGNED:
            self.switch()
        assert self.state is state, self.state

    def _sort(self, effect: Effect) -> None:
        match effect:
            case Send(str(link), [frame]):
                self.sent[link].append(decode([frame]))
            case Deliver(_, PairView() as view):
                self.views.append(view)
            case Warn(_, text):
                self.warnings.append(text)
            case Disconnect(str(link), _):
                self.closed.append(link)
            case Note():
                self.notes.append(effect)
            case Stopped():
                self.stopped = True
            case _:
                raise AssertionError(effect)
