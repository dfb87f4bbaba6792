"""One server of a pair alone: the test is its peer, its clients, its operator and its clock."""

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
    """A server with a heartbeat of a second, and what came out of it: `said` by link, `views`,
    `warnings`, `closed`, in order."""

    def __init__(self, role: PairRole = PairRole.PRIMARY, **policy: Any) -> None:
        self.now = 1000.0
        self.engine = BinaryStarPeer(BinaryStarPolicy(role, **policy), instance=OWN_INSTANCE)
        self.said: dict[str, list[Command]] = {}
        self.views: list[PairView] = []
        self.warnings: list[str] = []
        self.closed: list[str] = []
        self.notes: list[Note] = []
        self.stopped = False
        self.numbers = 0
        self.instance = PEERS_INSTANCE
        self.feed(Wake())

    # --- what happens to it -----------------------------------------------------------------------
    def feed(self, event: Any) -> None:
        """Feed one input, and sort its effects."""
        for effect in self.engine.handle([event], self.now):
            self._sort(effect)

    def join(self, link: str = "peer", *, dialled: bool = True) -> None:
        """Open a connection."""
        self.said[link] = []
        self.feed(PeerJoined(link, b"", DIALLED if dialled else None))

    def lose(self, link: str = "peer") -> None:
        """Close a connection."""
        self.feed(PeerLost(link))

    def hear(
        self, state: State, epoch: int = 0, *, link: str = "peer", answers: int = 0, **rest: Any
    ) -> None:
        """Let the peer say what it is. `answers`: the number of the word it answers."""
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
        self.tell(Word(**given | rest), link)

    def tell(self, command: Command, link: str = "peer") -> None:
        """Feed a message on a connection."""
        self.feed(Received(link, [encode(command)]))

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a turn whenever it wants one."""
        until = self.now + seconds
        while (at := self.engine.deadline()) is not None and at <= until:
            self.now = max(self.now, at)
            self.feed(Wake())
        self.now = until

    def stand_still(self, seconds: float) -> None:
        """Let time pass without a turn."""
        self.now += seconds

    def vote(self) -> bool:
        """Send a client's request; return whether it is served."""
        self.feed(Vote())
        return self.serves

    def switch(self) -> None:
        """Switch locally, as an operator."""
        self.feed(SwitchOver())

    def drain(self) -> None:
        """Drain it."""
        self.feed(Drain())

    # --- what it is -------------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """Whether it would answer a client now."""
        return self.now < self.engine.serves_until

    @property
    def state(self) -> State:
        """Its state."""
        return self.engine.state

    @property
    def epoch(self) -> int:
        """The epoch."""
        return self.engine.epoch

    def words(self, link: str = "peer") -> list[Word]:
        """Remove and return the heartbeats that it has sent over a connection."""
        words = [command for command in self.said[link] if isinstance(command, Word)]
        self.said[link] = [command for command in self.said[link] if not isinstance(command, Word)]
        return words

    def last_word(self, link: str = "peer") -> Word:
        """Return its newest heartbeat."""
        return self.words(link)[-1]

    def become(self, state: State, epoch: int | None = None) -> None:
        """Bring it into a state, as its peer would. The epoch is the first that fits."""
        self.join()
        own, other = (1, 2) if self.engine.policy.role is PairRole.PRIMARY else (2, 1)
        match state:
            case State.PRIMARY | State.BACKUP:
                assert self.state is state
            case State.PASSIVE:
                self.hear(State.ACTIVE, other if epoch is None else epoch)
            case State.ACTIVE | State.SUSPENDED | State.RESIGNED:
                self.hear(State.RESIGNED, max(0, (own if epoch is None else epoch) - 1))
                self.hear(State.PASSIVE, self.epoch - 1)
            case State.FAILED:
                self.hear(State.PRIMARY, role=self.engine.policy.role)
                self.join()
        if state is State.SUSPENDED:
            self.stand_still(5.0)
            self.feed(Wake())
        elif state is State.RESIGNED:
            self.switch()
        assert self.state is state, self.state

    def _sort(self, effect: Effect) -> None:
        match effect:
            case Send(str(link), [frame]):
                self.said[link].append(decode([frame]))
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
