"""Intruders that send garbage to the broker: random bytes, and meaningless messages.

An intruder is a process with a special engine. At random times it connects, sends one kind of
garbage, and leaves or stays. No honest peer may be affected (I13): the intruder offers a service
that no honest client calls, so that its false replies reach no user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from requite.engine import Effect, Engine, Received, Send
from requite.framing import SocketType, Zmtp
from requite.framing.base import Framing
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    ClientCancel,
    ClientFinal,
    ClientHeartbeat,
    ClientPartial,
    ClientRequest,
    Disconnect,
    DrainNotice,
    Progress,
    Ready,
    WorkerCancel,
    WorkerFinal,
    WorkerHeartbeat,
    WorkerPartial,
    WorkerRequest,
)
from requite.sim.kernel.garbage import GarbageEngine, Messages
from requite.sim.kernel.raw_bytes import RawBytes, spoil
from requite.sim.majordomo.parties import Peer

if TYPE_CHECKING:
    from requite.sim.kernel.stream import SimStream

_OWN: Final = b"intrigue"  # the intruders' own service
_VERSIONS: Final = ("0.1", "0.2", "0.3")
_HALF_SIZE: Final = 20_000  # of a message that is never completed
_HALF_P: Final = 0.3


# --- garbage in whole messages --------------------------------------------------------------------
def _random_frames(rng: Random, _services: Sequence[str]) -> Messages:
    return [
        [rng.randbytes(rng.choice((0, 1, 5, 6, 7, 30))) for _ in range(rng.randint(1, 5))]
        for _ in range(rng.randint(1, 4))
    ]


def _sensible(rng: Random, services: Sequence[str]) -> Messages:
    """Return one of each command of a random dialect, both roles, in a fixed order."""
    dialect = by_version(rng.choice(_VERSIONS))
    names = (*services, _OWN.decode(), "mmi.stats", "mmi.nothing", "\n", f"x{rng.random()}")
    asked = rng.choice(names).encode()
    messages = [
        dialect.encode(ClientRequest(asked, [b"hello"], 1, 500, 0, b"")),
        dialect.encode(ClientFinal(asked, [b"no"], 1, 0, 1)),
        dialect.encode(Ready(_OWN, 1, 100, 0)),
        dialect.encode(WorkerFinal(b"nobody", [b"no"], 7, 0)),
        dialect.encode(WorkerHeartbeat(100)),
        dialect.encode(Disconnect()),
        dialect.encode(WorkerRequest(b"nobody", [b"no"], 7, 0, 1, b"")),
    ]
    if dialect.has_partials:
        messages += [
            dialect.encode(ClientPartial(asked, [b"no"], 1, 0)),
            dialect.encode(WorkerPartial(b"nobody", [b"no"], 7)),
        ]
    if dialect.has_ids:
        messages += [
            dialect.encode(ClientCancel(1)),
            dialect.encode(ClientHeartbeat(100)),
            dialect.encode(Progress(7, 0)),
            dialect.encode(DrainNotice()),
            dialect.encode(WorkerCancel(7)),
            dialect.encode(Ready(b"mmi.mine", 1, 100, 0)),
        ]
    return messages


def _shuffled(rng: Random, services: Sequence[str]) -> Messages:
    """Return commands in random order, with mixed dialects."""
    messages = [*_sensible(rng, services), *_sensible(rng, services)]
    rng.shuffle(messages)
    return messages[: rng.randint(1, 6)]


def _damaged(rng: Random, services: Sequence[str]) -> Messages:
    """Return commands with a few damaged bytes, frames or ends."""
    return [_damage(rng, message) for message in _shuffled(rng, services)]


def _damage(rng: Random, message: list[bytes]) -> list[bytes]:
    damaged = list(message)
    at = rng.randrange(len(damaged))
    frame = damaged[at]
    match rng.randrange(4):
        case 0:
            damaged[at] = frame[: rng.randint(0, len(frame))]
        case 1:
            damaged[at] = frame + rng.randbytes(3)
        case 2:
            del damaged[at:]
        case _:
            position = rng.randint(0, len(frame))
            damaged[at] = frame[:position] + rng.randbytes(1) + frame[position + 1 :]
    return damaged or [b""]


def _ready_twice(rng: Random, _services: Sequence[str]) -> Messages:
    dialect = by_version(rng.choice(_VERSIONS))
    return [dialect.encode(Ready(_OWN, 1, 100, 0)), dialect.encode(Ready(_OWN, 1, 100, 0))]


def _same_id_twice(_rng: Random, services: Sequence[str]) -> Messages:
    dialect = by_version("0.3")
    request = dialect.encode(ClientRequest(services[0].encode(), [b"hello"], 7, 0, 0, b""))
    return [request, request, dialect.encode(ClientCancel(7))]


def _worker_for_itself(rng: Random, _services: Sequence[str]) -> Messages:
    """Register as a worker, and reply to requests that were never sent."""
    dialect = by_version(rng.choice(_VERSIONS))
    answers = [
        dialect.encode(WorkerFinal(b"nobody", [b"no"], rng.randint(0, 50), 0)) for _ in range(5)
    ]
    return [dialect.encode(Ready(_OWN, 3, 100, 50)), *answers]


def _client_of_itself(rng: Random, _services: Sequence[str]) -> Messages:
    """Call the intruders' own service, so that its workers get requests."""
    dialect = by_version(rng.choice(_VERSIONS))
    return [dialect.encode(ClientRequest(_OWN, [b"?"], n, 0, 0, b"")) for n in range(1, 9)]


def _flood(_rng: Random, services: Sequence[str]) -> Messages:
    """Return more requests than fit into buffers."""
    dialect = by_version("0.3")
    body = [b"x" * 5000]
    name = services[0].encode()
    return [dialect.encode(ClientRequest(name, body, n, 2000, 0, b"")) for n in range(40)]


_KINDS: Final[tuple[Callable[[Random, Sequence[str]], Messages], ...]] = (
    _random_frames,
    _shuffled,
    _damaged,
    _damaged,
    _ready_twice,
    _same_id_twice,
    _worker_for_itself,
    _client_of_itself,
    _flood,
)


# --- garbage in bytes -----------------------------------------------------------------------------
def _draw_framing(rng: Random, services: Sequence[str]) -> Framing:
    if rng.random() < 0.6:
        return Zmtp(rng.choice((SocketType.DEALER, SocketType.DEALER, SocketType.REQ)))
    good = Zmtp(SocketType.DEALER).opening()
    ready = _command(b"READY", _property(b"Socket-Type", b"DEALER"))
    session = good + ready + b"".join(map(_on_the_wire, _shuffled(rng, services)))
    openings = (
        spoil(rng, session),
        spoil(rng, session),
        good + _command(b"READY", _property(b"Socket-Type", b"PUB")),
        good + _command(b"READY", _property(b"Identity", b"\0mine")),
        good + _command(b"READY", rng.randbytes(20)),
        good + _command(b"HELLO", b"\4user\4word"),
        good + ready + _command(b"PING", b"\0\1context") * 3 + _command(b"NOISE", b"") + session,
        good + ready + _command(b"PING", b""),
        good + ready + _command(b"ERROR", b"\6no way"),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        rng.randbytes(rng.choice((1, 10, 64, 100, 3000))),
        good[: rng.randint(0, len(good) - 1)],  # an incomplete handshake, then silence
        good + rng.randbytes(80),
        good + ready + rng.randbytes(80),
        good + ready + b"\x03" + b"\xff" * 8,  # a frame of 2^64 - 1 bytes
        good + ready + b"\x01\x00" * 5000,  # a message without end
    )
    return RawBytes(rng.choice(openings))


def _half_a_message() -> Framing:
    ready = _command(b"READY", _property(b"Socket-Type", b"DEALER"))
    head = b"\x02" + (2 * _HALF_SIZE).to_bytes(8, "big")
    return RawBytes(Zmtp(SocketType.DEALER).opening() + ready + head + bytes(_HALF_SIZE))


def _property(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value


def _command(name: bytes, data: bytes) -> bytes:
    body = bytes((len(name),)) + name + data
    return bytes((4, len(body))) + body


def _on_the_wire(message: list[bytes]) -> bytes:
    more = [bytes((1, len(frame))) + frame for frame in message[:-1]]
    return b"".join(more) + bytes((0, len(message[-1]))) + message[-1]


class _Replying(GarbageEngine):
    def answer(self, event: Received) -> Iterator[Effect]:
        """Send garbage in reply, at random."""
        if self.rng.random() < 0.2 and event.peer in self.peers:
            yield from (Send(event.peer, m) for m in _shuffled(self.rng, *self.facts))


class Intruder(Peer):
    """A process that sends garbage."""

    kind = "intruder"
    is_honest = False

    def make_engine(self) -> Engine:
        """Return an engine that sends garbage."""
        return _Replying(self.rng, _KINDS, self.stage.knobs.services)

    def make_framing(self, stream: SimStream, place: Any, accepted: bool) -> Framing:
        """Return ZMTP, or bytes that only resemble it."""
        if self.stage.knobs.is_limited and self.rng.random() < _HALF_P:
            return _half_a_message()
        return _draw_framing(self.rng, self.stage.knobs.services)
