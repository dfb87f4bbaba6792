"""Nodes, the routes between them, and how connections come about.

A node is a machine with one process on it; both have the same name. Who listens at several ports of
its node is dialled as `node:port`. A route leads one way from one
node to another, so that a partition can be one-way. Faults act on routes and on single connections;
`faults.py` decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from requite.sim.pipe import RESET, Pipe
from requite.sim.stream import KEEPALIVE, SimStream, connect

if TYPE_CHECKING:
    from requite.sim.process import Process
    from requite.sim.world import Act, World

Accept = Callable[["SimStream"], object]
"""Takes a connection that somebody else has dialled."""

REFUSED: Final = "connection refused"
NO_ANSWER: Final = "nobody answers"
# Short enough for greetings and headers to be cut inside, long enough for bodies to come in pieces.
_PIECE_SIZE_MAX: Final = 200


class Chunking(StrEnum):
    """At which borders a stream of bytes is cut on arrival."""

    WHOLE = "whole"  # what one write sent arrives together
    RANDOM = "random"  # now and then only the first part of it
    BYTES = "bytes"  # now and then a single byte


@dataclass(frozen=True, slots=True)
class Shape:
    """What the network is like when nothing is wrong with it.

    One way takes `latency_s` plus up to `jitter_s`, and `spike_s` more with probability `spike_p`.
    After `retransmit_s` without acknowledgement a sender gives up (minutes in nature, but then
    longer than a run); an idle end finds out after `keepalive_s` that the other is gone. With more
    than `buffer_size` bytes unread by the other end, a stream pushes back.
    """

    latency_s: float = 0.001
    jitter_s: float = 0.0
    spike_p: float = 0.0
    spike_s: float = 0.0
    chunking: Chunking = Chunking.WHOLE
    retransmit_s: float = 15.0
    keepalive_s: float = 10.0
    connect_timeout_s: float = 5.0
    buffer_size: int = 64 << 10


class Route:
    """One way between two nodes: free, cut (a partition) or clogged (a queue that does not move).

    Either way nothing arrives; acknowledgements are missed only where a route is cut.
    """

    __slots__ = ("_network", "_stalled", "clogs", "cuts", "pipes")

    def __init__(self, network: Network) -> None:
        self._network = network
        self.cuts = 0  # partitions may overlap, and clogs as well
        self.clogs = 0
        self.pipes: dict[Pipe, None] = {}
        self._stalled: list[tuple[Act, tuple[Any, ...]]] = []

    @property
    def is_free(self) -> bool:
        """Whether anything arrives."""
        return not self.cuts and not self.clogs

    def latency_s(self) -> float:
        """Draw how long the next bytes take."""
        network = self._network
        shape, random = network.shape, network.random
        latency_s = shape.latency_s + shape.jitter_s * random()
        if shape.spike_p and not network.is_healed and random() < shape.spike_p:
            latency_s += shape.spike_s * random()
        return latency_s

    def carry(self, act: Act, *args: Any, behind: Pipe | None = None) -> float:
        """Let `act(*args)` happen at the far end, not before what `behind` carries by now; return
        when, if nothing comes in between."""
        at = self._network.world.now + self.latency_s()
        if behind is not None:
            at = max(at, behind.last_at)
        self._network.world.at(at, self._arrive, act, args)
        return at

    def _arrive(self, act: Act, args: tuple[Any, ...]) -> None:
        if self.is_free:
            act(*args)
        else:
            self._stalled.append((act, args))

    def maybe_resume(self) -> None:
        """Let go on what had to stop, if nothing is in its way any more."""
        if not self.is_free:
            return
        world = self._network.world
        at = world.now + self.latency_s()
        for act, args in self._stalled:
            world.at(at, self._arrive, act, args)
        self._stalled.clear()
        for pipe in self.pipes:
            pipe.resume(at)


class Network:
    """All routes and listeners, and the state of every node."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.random = world.rng("network").random
        self.is_healed = False
        self._routes: dict[tuple[str, str], Route] = {}
        self._listeners: dict[str, tuple[Process, Accept]] = {}
        self._down: set[str] = set()

    def route(self, source: str, sink: str) -> Route:
        """Return the way from one node to another."""
        key = (source, sink)
        if key not in self._routes:
            self._routes[key] = Route(self)
        return self._routes[key]

    def border(self, size: int) -> int:
        """Draw after how many of `size` bytes that could arrive together the first read ends."""
        chunking = self.shape.chunking
        if chunking is Chunking.WHOLE or size < 2 or self.random() < 0.7:
            return size
        if chunking is Chunking.BYTES and self.random() < 0.5:
            return 1
        return 1 + int(self.random() * min(size - 1, _PIECE_SIZE_MAX))

    # --- faults of nodes and routes ---------------------------------------------------------------
    def is_up(self, node: str) -> bool:
        """Whether the machine has power; its process may still be down."""
        return node not in self._down

    def power_off(self, node: str) -> None:
        """Let a machine fall silent."""
        self._down.add(node)

    def power_on(self, node: str) -> None:
        """Let it answer again: to what former connections still send, with resets."""
        self._down.discard(node)
        for pipe in self._pipes_to(node):
            pipe.trust()
            if pipe.size and not pipe.sink.is_open:
                pipe.back.carry(pipe.source.end, RESET)

    def cut(self, source: str, sink: str) -> None:
        """Partition one way: bytes are held, and senders either way miss acknowledgements."""
        self.route(source, sink).cuts += 1
        for pipe in self._pipes_between(source, sink):
            if pipe.size:
                pipe.doubt()

    def mend(self, source: str, sink: str) -> None:
        """End a one-way partition."""
        route = self.route(source, sink)
        route.cuts -= 1
        route.maybe_resume()
        for pipe in self._pipes_between(source, sink):
            if pipe.is_acknowledged:
                pipe.trust()

    def clog(self, source: str, sink: str) -> None:
        """Hold everything back one way; acknowledgements are not lost, only late."""
        self.route(source, sink).clogs += 1

    def unclog(self, source: str, sink: str) -> None:
        """Let it go on."""
        route = self.route(source, sink)
        route.clogs -= 1
        route.maybe_resume()

    def heal(self) -> None:
        """End all partitions, clogs and spikes."""
        self.is_healed = True
        for (source, sink), route in list(self._routes.items()):
            while route.clogs:
                self.unclog(source, sink)
            while route.cuts:
                self.mend(source, sink)

    def reset(self, stream: SimStream) -> None:
        """Break a connection both ways in mid-flight: some of what is under way still arrives."""
        stream.pipe.cut_off(self._prefix)
        stream.other.pipe.cut_off(self._prefix)

    def _prefix(self, size: int) -> int:
        return int(self.random() * (size + 1))

    def black_hole(self, stream: SimStream) -> None:
        """Lose all bytes of a connection from now on, with both ends up (a NAT that forgot it)."""
        for pipe in (stream.pipe, stream.other.pipe):
            pipe.sever()
            self.world.after(self.shape.keepalive_s, pipe.source.end, KEEPALIVE)

    def _pipes_to(self, node: str) -> list[Pipe]:
        ways = [route for (_, sink), route in self._routes.items() if sink == node]
        return [pipe for route in ways for pipe in route.pipes]

    def _pipes_between(self, source: str, sink: str) -> list[Pipe]:
        return [*self.route(source, sink).pipes, *self.route(sink, source).pipes]

    # --- connections ------------------------------------------------------------------------------
    def listen(self, process: Process, port: str = "", accept: Accept | None = None) -> None:
        """Let a process be dialled by the name of its node, or at a port of it (`node:port`)."""
        address = f"{process.name}:{port}" if port else process.name
        self._listeners[address] = process, accept or process.accept

    def listen_no_more(self, process: Process) -> None:
        """Refuse who dials it."""
        listeners = self._listeners
        for address in [a for a, (whose, _) in listeners.items() if whose is process]:
            del listeners[address]

    def dial(
        self,
        process: Process,
        address: str,
        connected: Callable[[SimStream], None],
        failed: Callable[[str], None],
    ) -> None:
        """Connect `process` to `address`; exactly one of the callables is called, later."""
        Dial(self, process, address, connected, failed)


class Dial:
    """One attempt to connect: a SYN there, an answer back, each of which may be lost or late."""

    def __init__(
        self,
        network: Network,
        process: Process,
        address: str,
        connected: Callable[[SimStream], None],
        failed: Callable[[str], None],
    ) -> None:
        self._network = network
        self._process = process
        self._address = address
        self._node = address.partition(":")[0]
        self._connected = connected
        self._failed = failed
        self._life = process.life
        self._over = False
        network.world.after(network.shape.connect_timeout_s, self._fail, NO_ANSWER)
        network.route(process.name, self._node).carry(self._knock)

    def _knock(self) -> None:
        network = self._network
        if self._over or not network.is_up(self._node):
            return
        back = network.route(self._node, self._process.name)
        if self._address not in network._listeners:
            back.carry(self._fail, REFUSED)
            return
        listener, accept = network._listeners[self._address]
        ours, theirs = connect(network, self._process, listener)
        at = back.carry(self._stand, ours)
        theirs.pipe.last_at = at
        accept(theirs)

    def _stand(self, stream: SimStream) -> None:
        if not self._network.is_up(self._process.name):
            stream.vanish()
            return
        if self._over or self._life != self._process.life:
            stream.die(politely=False)
            return
        self._over = True
        self._connected(stream)

    def _fail(self, why: str) -> None:
        if not self._over and self._life == self._process.life:
            self._over = True
            self._failed(why)
