"""Feed a broker engine messages of up to eight peers, in any order and at any time.

    python -m fuzz.drive fuzz_majordomo_broker DIRECTORY [libFuzzer options]

An input is a list of steps. A step is a byte: three bits choose the peer, the others the event: a
message (frames, each preceded by its size in one byte), passing time, or the peer disconnects,
stops reading or resumes reading. Checks for each input: no exception is raised; nothing is sent to
a disconnected peer; no worker exceeds its capacity; no peer is paused twice; the engine does not
request wake-ups endlessly; when all peers have disconnected, its tables are empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from requite.engine import (
    Disconnect,
    Drain,
    Effect,
    Message,
    PeerBlocked,
    PeerJoined,
    PeerLost,
    PeerWritable,
    Received,
    ResumeReading,
    Send,
    Stopped,
    StopReading,
    Wake,
)
from requite.principal import Principal
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.parties import Worker
from requite.protocols.majordomo.policy import BrokerPolicy, PartialsFor01
from requite.protocols.majordomo.wire import (
    ClientRequest,
    Ready,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
)
from requite.protocols.majordomo.wire import Disconnect as DisconnectCommand

PEERS: Final = 8
STEPS_MAX: Final = 200
FRAMES_MAX: Final = 16
TICK_S: Final = 0.05  # seconds per unit of a step that advances the clock
WAKES_MAX: Final = 5000  # 8 workers in two minutes of heartbeats every half second need 2000
FOR_EVER_S: Final = 120.0

# The event of a step, by the bits that do not choose the peer.
MESSAGE, PASS_TIME, LEAVE, BLOCK, UNBLOCK, DRAIN = range(6)
_KINDS: Final = (MESSAGE,) * 20 + (PASS_TIME,) * 6 + (LEAVE,) * 3 + (BLOCK, UNBLOCK, DRAIN)


class World:
    """A broker and its connected peers."""

    def __init__(self, policy: BrokerPolicy) -> None:
        self.broker = MajordomoBroker(policy)
        self.broker.authorizer.principal_named = Principal  # everybody may act for everybody
        self.now = 100.0
        self.connected: set[int] = set()
        self.unread: set[object] = set()
        self.stopped = False

    def say(self, peer: int, message: Message) -> None:
        """Send the broker a message from a peer; connect the peer first if necessary."""
        if peer not in self.connected:
            self.connected.add(peer)
            self._feed(PeerJoined(peer, b"peer%d" % peer))
        self._feed(Received(peer, [message]))

    def leave(self, peer: int) -> None:
        """Close a peer's connection."""
        if peer in self.connected:
            self.connected.remove(peer)
            self.unread.discard(peer)
            self._feed(PeerLost(peer, "left"))

    def turn(self, kind: int, peer: int) -> None:
        """Make a peer stop or resume reading, or drain the broker."""
        if kind == DRAIN:
            self._feed(Drain())
        elif peer in self.connected:
            self._feed(PeerBlocked(peer) if kind == BLOCK else PeerWritable(peer))

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, with a wake-up at each deadline of the broker."""
        end = self.now + seconds
        for _ in range(WAKES_MAX):
            at = self.broker.deadline()
            if at is None or at > end:
                self.now = end
                return
            self.now = max(self.now, at)
            self._feed(Wake())
        raise AssertionError(f"{WAKES_MAX} wake-ups within {seconds} s")

    def check_end(self) -> None:
        """Disconnect all peers, wait, and check that no state remains (I9)."""
        for peer in sorted(self.connected):
            self.leave(peer)
        if self.stopped:  # the broker was draining, and waited only for these peers
            return
        self.pass_time(FOR_EVER_S)
        left = self.broker.snapshot()
        assert not left.services, "services are left"
        assert not left.workers, "workers are left"
        assert (left.clients, left.newcomers, left.pending, left.timers) == (0, 0, 0, 0), left
        assert left.unread == 0, "clients that have left are still pushed back"

    def _feed(self, event: tuple[object, ...]) -> None:
        for effect in self.broker.handle([event], self.now):
            self._perform(effect)
        for party in self.broker.parties.values():
            if isinstance(party, Worker):
                assert len(party.holds) <= party.capacity, "a worker has more than it takes"

    def _perform(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            assert effect.peer in self.connected, "something is sent to who is gone"
            assert all(isinstance(frame, bytes) for frame in effect.message)
        elif isinstance(effect, Disconnect):
            assert isinstance(effect.peer, int)
            self.connected.remove(effect.peer)
            self.unread.discard(effect.peer)
        elif isinstance(effect, StopReading):
            assert effect.peer not in self.unread, "somebody is pushed back twice"
            self.unread.add(effect.peer)
        elif isinstance(effect, ResumeReading):
            self.unread.remove(effect.peer)
        elif isinstance(effect, Stopped):
            self.stopped = True


def one_input(data: bytes) -> None:
    """Run one input; an exception or a failed assertion is a finding."""
    if not data:
        return
    world = World(_policy(data[0]))
    for kind, peer, argument, message in steps(data[1:]):
        if kind == MESSAGE:
            world.say(peer, message)
        elif kind == PASS_TIME:
            world.pass_time(argument * TICK_S)
        elif kind == LEAVE:
            world.leave(peer)
        else:
            world.turn(kind, peer)
        if world.stopped:
            return
    world.check_end()


def _policy(choice: int) -> BrokerPolicy:
    return BrokerPolicy(
        attempts_max=1 + choice % 3,
        services_max=3,
        queue_max=4,
        client_pending_max=5,
        tell_old_clients=bool(choice & 64),
        partials_for_0_1=PartialsFor01.REFUSE if choice & 128 else PartialsFor01.JOIN,
        notes=bool(choice & 32),
    )


def steps(data: bytes) -> Iterator[tuple[int, int, int, Message]]:
    """Split an input into steps: kind, peer, argument, message."""
    at = 0
    for _ in range(STEPS_MAX):
        if at + 1 >= len(data):
            return
        kind, peer = _KINDS[data[at] // PEERS], data[at] % PEERS
        argument = data[at + 1]
        at += 2
        message: Message = []
        if kind == MESSAGE:
            for _ in range(1 + argument % FRAMES_MAX):
                size = data[at] if at < len(data) else 0
                message.append(data[at + 1 : at + 1 + size])
                at += 1 + size
        yield kind, peer, argument, message


def step(kind: int, peer: int, argument: int = 0, message: Message | None = None) -> bytes:
    """Return the bytes of a step: the inverse of `steps`."""
    head = bytes((_KINDS.index(kind) * PEERS + peer,))
    if message is None:
        return head + bytes((argument,))
    frames = b"".join(bytes((len(frame),)) + frame for frame in message)
    return head + bytes((len(message) - 1,)) + frames


def corpus() -> Iterator[bytes]:
    """Yield inputs with a complete request, for each pair of dialects."""
    versions = ("0.1", "0.2", "0.3")
    for client in versions:
        for worker in versions:
            asks, serves = by_version(client), by_version(worker)
            address = b"peer0"
            request = step(MESSAGE, 0, 0, asks.encode(ClientRequest(b"s", [b"x"], 1, 900, 0, b"")))
            ready = step(
                MESSAGE, 1, 0, serves.encode(Ready(b"s", 1, 1000, 500 if serves.has_ids else 0))
            )
            final = step(MESSAGE, 1, 0, serves.encode(WorkerFinal(address, [b"y"], 1, 0)))
            beat = step(MESSAGE, 1, 0, serves.encode(WorkerHeartbeat(1000)))
            bye = step(MESSAGE, 1, 0, serves.encode(DisconnectCommand()))
            pause, leave = step(PASS_TIME, 0, 20), step(LEAVE, 0)
            yield b"\0" + ready + request + final + beat + pause + bye
            yield b"\xff" + request + ready + pause + ready + bye + leave
            yield b"\x41" + ready + request + step(BLOCK, 1) + request + step(LEAVE, 1) + pause * 9
            if asks.has_ids:
                named = ClientRequest(b"s", [b"x"], 1, 900, 0, b"k", principal=b"alice")
                yield b"\x42" + ready + step(MESSAGE, 0, 0, asks.encode(named)) + final + leave
            if serves.has_partials:
                partial = step(MESSAGE, 1, 0, serves.encode(WorkerPartial(address, [b"p"], 1)))
                yield b"\xa0" + ready + request + partial + partial + final + step(DRAIN, 0)


def make_corpus(directory: Path) -> None:
    """Write each input of the corpus to a file."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(corpus()):
        (directory / f"{number:03}").write_bytes(data)
