"""A model of a broker whose processor is the limit, in virtual time.

Host and engine are real. Each message costs them some time. Connections have buffers of a fixed
size, as those of an operating system have; in front of them, requests wait at their clients until
they are sent, or too late.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, cast

from requite.engine import Effect, Input, Received, Send, SendAll
from requite.principal import Credential
from requite.protocols.majordomo.broker import MajordomoBroker
from requite.protocols.majordomo.dialects import by_version
from requite.protocols.majordomo.wire import (
    ClientFinal,
    ClientRequest,
    Ready,
    WorkerFinal,
    WorkerPartial,
    WorkerRequest,
)
from requite.request import Status
from requite.shell.host import Host, Link, LinkLimits

DIALECT = by_version("0.3")
_READ_SIZE = 64 << 10
_RECEIVE_SIZE = 112 << 10  # of the buffers at both ends of a connection
_SEND_SIZE = 32 << 10
_POLL_S = 150e-6
# What the parts of a request cost the broker: in proportion as measured, but more, so that a second
# has few requests.
_READ_S = 10e-6  # per message
_ACCEPT_S = 120e-6
_DISPATCH_S = 100e-6
_FINISH_S = 190e-6
_REFUSE_S = 20e-6
CAPACITY_PER_S = 1 / (2 * _READ_S + _ACCEPT_S + _DISPATCH_S + _FINISH_S)


class PlainFraming:
    """Two frames per message, behind their lengths of two bytes; no handshake."""

    login: None = None
    peer_credential: Credential | None = None

    def __init__(self) -> None:
        self.ready = True
        self.refusal = ""
        self.peer_identity = b""
        self.peer_features: frozenset[str] = frozenset()
        self.farewell = ""
        self._rest = b""

    @property
    def mid_message(self) -> bool:
        return bool(self._rest)

    @property
    def partial_size(self) -> int:
        return len(self._rest)

    def opening(self) -> bytes:
        return b""

    def receive(self, chunk: bytes) -> list[list[bytes]]:
        data, at, messages = self._rest + chunk, 0, []
        while at + 4 <= len(data):
            head = at + 4 + int.from_bytes(data[at : at + 2], "big")
            body = head + int.from_bytes(data[at + 2 : at + 4], "big")
            if body > len(data):
                break
            messages.append([data[at + 4 : head], data[head:body]][: 1 + (body > head)])
            at = body
        self._rest = data[at:]
        return messages

    def refuse(self, _status: str, /) -> None:
        raise AssertionError("nobody is refused")

    def output(self) -> bytes:
        return b""

    def encode(self, message: Sequence[bytes], out: list[Any]) -> int:
        out.append(pack(message))
        return len(out[-1])

    def closing(self) -> bytes:
        return b""

    def at_end(self) -> None:
        """Do nothing: no message is cut."""


def pack(message: Sequence[bytes]) -> bytes:
    """Return the bytes of a message."""
    head, body = message[0], b"".join(message[1:])
    return b"%b%b%b%b" % (len(head).to_bytes(2, "big"), len(body).to_bytes(2, "big"), head, body)


class Party:
    """A peer with its stream: `unread` are bytes that the host has not read."""

    peer_credential: Credential | None = None

    def __init__(self, name: str) -> None:
        self.peer_name = name
        self.unread = bytearray()
        self.is_read = True
        self.may_close = False
        self.read_was_full = False
        self.framing = PlainFraming()
        self.link: Any = None

    @property
    def has_unread(self) -> bool:
        return bool(self.unread)

    def start(self, _owner: object, link: object) -> None:
        self.link = link

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        assert self.may_close, "nobody is disconnected"

    def abort(self) -> None:
        raise AssertionError("nobody is disconnected")


class Worker(Party):
    """Answers at once, with partial replies before the final one."""

    def __init__(self, name: str, partials: int) -> None:
        super().__init__(name)
        self._partials = partials

    def write(self, data: bytes) -> None:
        for message in self.framing.receive(data):
            command = DIALECT.decode_to_worker([*message])
            if isinstance(command, WorkerRequest):
                partial = WorkerPartial(b"", [b"x"], command.dispatch_id)
                self.unread += pack(DIALECT.encode(partial)) * self._partials
                final = WorkerFinal(b"", [b"x"], command.dispatch_id, Status.OK)
                self.unread += pack(DIALECT.encode(final))


class Client(Party):
    """Makes `rate` requests per second; their ids are numbers. `ends` counts how they ended, and
    `late` those whose reply came after the timeout."""

    def __init__(self, name: str, world: World, rate: float, timeout_s: float) -> None:
        super().__init__(name)
        self._world = world
        self._timeout_s = timeout_s
        self._rate = rate
        self._began_at = world.now
        self._made = 0
        self._unsent: deque[int] = deque()
        self._sending = bytearray()
        self.latencies: list[float] = []
        self.ends: Counter[str] = Counter()

    def due_at(self, number: int) -> float:
        return self._began_at + number / self._rate

    @property
    def next_at(self) -> float:
        return self.due_at(self._made)

    def send(self, now: float) -> None:
        """Send as many of the requests that are due as the buffers of the connection take."""
        while self.due_at(self._made) <= now:
            self._unsent.append(self._made)
            self._made += 1
        self._carry()
        while self._unsent and len(self._sending) < _SEND_SIZE:
            number = self._unsent.popleft()
            left_s = self.due_at(number) + self._timeout_s - now
            if left_s < 0.001:
                self.note(number, "unsent")
                continue
            request = ClientRequest(b"echo", [bytes(400)], number, int(left_s * 1000))
            self._sending += pack(DIALECT.encode(request))
            self._carry()

    def _carry(self) -> None:
        """Move bytes to the buffer of the broker's end."""
        size = _RECEIVE_SIZE - len(self.unread)
        self.unread += self._sending[:size]
        del self._sending[:size]

    def note(self, number: int, end: str) -> None:
        late_s = self._world.now - self.due_at(number) - self._timeout_s
        if self._world.counts_from <= self.due_at(number):
            if end == "OK" and late_s <= 0:
                self.latencies.append(late_s + self._timeout_s)
            self.ends["late" if end == "OK" and late_s > 0 else end] += 1

    def write(self, data: bytes) -> None:
        for message in self.framing.receive(data):
            command = DIALECT.decode_to_client([*message])
            if isinstance(command, ClientFinal):
                self.note(command.request_id, Status(command.status).name)


class Costly:
    """The broker's engine, which takes time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._broker = MajordomoBroker()
        self.deadline = self._broker.deadline
        self.snapshot = self._broker.snapshot

    def handle(self, events: Sequence[Input], now: float) -> Iterable[Effect]:
        accepted = self._accepted
        effects = list(self._broker.handle(events, now))
        spent_s = (self._accepted - accepted) * _ACCEPT_S
        for event in events:
            if isinstance(event, Received):
                spent_s += len(event.messages) * _READ_S
        for effect in effects:
            if isinstance(effect, SendAll):
                spent_s += len(effect.messages) * _REFUSE_S
            elif isinstance(effect, Send):
                if isinstance(cast(Link, effect.peer).stream, Worker):
                    spent_s += _DISPATCH_S
                else:
                    is_reply = len(effect.message) == 2 and effect.message[1] == b"x"
                    spent_s += _FINISH_S if is_reply else _REFUSE_S
        self._world.now += spent_s
        return effects

    @property
    def unfinished(self) -> int:
        """How many requests it holds."""
        return self._broker.load.count

    @property
    def _accepted(self) -> int:
        return sum(each.counters.accepted for each in self._broker.services.values())


class World:
    """A broker with 4 workers that take 16 requests at a time, and clients."""

    def __init__(self, partials: int = 0) -> None:
        self.now = 1000.0
        self.counts_from = inf
        self.clients: list[Client] = []
        self._wants_flush = False
        self._wake_at = inf
        self._engine = Costly(self)
        self.host = Host(
            self._engine,
            lambda: self.now,
            PlainFraming,
            wake_at=self._set_wake,
            want_flush=self._want_flush,
            connect=lambda: None,
            limits=LinkLimits(burst=64),
        )
        self._parties: list[Party] = []
        for number in range(4):
            worker = Worker(f"w{number}", partials)
            worker.unread += pack(DIALECT.encode(Ready(b"echo", 16, 30_000, 30_000, b"a worker")))
            self._join(worker)

    @property
    def unfinished(self) -> int:
        """How many requests the broker holds."""
        return self._engine.unfinished

    def client(self, load: float, timeout_s: float = 1.0) -> Client:
        """Add a client with a load that is relative to the capacity of the broker."""
        number = len(self.clients)
        client = Client(f"c{number}", self, load * CAPACITY_PER_S, timeout_s)
        self.clients.append(client)
        self._join(client)
        return client

    def _join(self, party: Party) -> None:
        self._parties.append(party)
        self.host.opened(party, accepted=True)

    def run(self, seconds: float) -> None:
        """Run the loop of the broker."""
        ends_at = self.now + seconds
        while self.now < ends_at:
            self.now += _POLL_S
            for client in self.clients:
                client.send(self.now)
            ready = [each for each in self._parties if each.unread and each.is_read]
            for party in ready:
                if party.is_read:
                    chunk = bytes(party.unread[:_READ_SIZE])
                    party.read_was_full = len(chunk) == _READ_SIZE
                    del party.unread[:_READ_SIZE]
                    self.host.received(party.link, chunk)
            if self._wake_at <= self.now:
                self._wake_at = inf
                self.host.wake()
            if self._wants_flush:
                self._wants_flush = False
                self.host.flush()
            elif not ready:
                soon = min(each.next_at for each in self.clients)
                self.now = max(self.now, min(soon, self._wake_at))

    def count(self, seconds: float) -> None:
        """Run, and count the requests that are due from now on until their ends."""
        self.counts_from = self.now
        self.run(seconds)

    def _set_wake(self, at: float) -> None:
        self._wake_at = at

    def _want_flush(self) -> None:
        self._wants_flush = True
