"""Nodes, the routes between them, and dialling.

A node is a machine with one process; both have the same name. A process with several ports is
dialled as `node:port`. A route has one direction, so that a partition can be one-way. Faults act on
routes and on single connections; `faults.py` decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from requite.sim.kernel.medium import Medium, Shape
from requite.sim.kernel.pipe import RESET, Pipe, Route
from requite.sim.kernel.stream import KEEPALIVE, Holder, SimStream

if TYPE_CHECKING:
    from requite.sim.kernel.world import World

Accept = Callable[[SimStream], object]
"""Accepts a connection that another process dialled."""

REFUSED: Final = "connection refused"
NO_ANSWER: Final = "nobody answers"


class Network:
    """All routes and listeners, and the state of every node."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self._medium = Medium(world, shape)
        self._routes: dict[tuple[str, str], Route] = {}
        self._listeners: dict[str, tuple[Holder, Accept]] = {}

    def route(self, source: str, sink: str) -> Route:
        """Return the route from one node to another."""
        key = (source, sink)
        if key not in self._routes:
            self._routes[key] = Route(self._medium)
        return self._routes[key]

    # --- faults of nodes and routes ---------------------------------------------------------------
    def is_up(self, node: str) -> bool:
        """Whether the machine has power; its process may still be down."""
        return self._medium.is_up(node)

    def power_off(self, node: str) -> None:
        """Cut power to a machine: its connections drop without a FIN."""
        self._medium.power_off(node)

    def power_on(self, node: str) -> None:
        """Restore power to a machine: it resets connections from before the outage."""
        self._medium.power_on(node)
        for pipe in self._pipes_to(node):
            pipe.trust()
            if pipe.size and not pipe.sink.is_open:
                pipe.back.carry(pipe.source.end, RESET)

    def cut(self, source: str, sink: str) -> None:
        """Partition one way: bytes are held; senders in both directions miss acknowledgements."""
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
        """Congest one way: bytes are held; acknowledgements are late, but not lost."""
        self.route(source, sink).clogs += 1

    def unclog(self, source: str, sink: str) -> None:
        """End a congestion."""
        route = self.route(source, sink)
        route.clogs -= 1
        route.maybe_resume()

    def heal(self) -> None:
        """End all partitions, clogs and spikes."""
        self._medium.is_healed = True
        for (source, sink), route in list(self._routes.items()):
            while route.clogs:
                self.unclog(source, sink)
            while route.cuts:
                self.mend(source, sink)

    def reset(self, stream: SimStream) -> None:
        """Reset a connection in both directions: some of the bytes in flight still arrive."""
        stream.pipe.cut_off(self._prefix)
        stream.other.pipe.cut_off(self._prefix)

    def _prefix(self, size: int) -> int:
        return int(self._medium.random() * (size + 1))

    def black_hole(self, stream: SimStream) -> None:
        """Drop all bytes of a connection from now on, with both ends up (an expired NAT entry)."""
        for pipe in (stream.pipe, stream.other.pipe):
            pipe.sever()
            self.world.after(self.shape.keepalive_s, pipe.source.end, KEEPALIVE)

    def _pipes_to(self, node: str) -> list[Pipe]:
        ways = [route for (_, sink), route in self._routes.items() if sink == node]
        return [pipe for route in ways for pipe in route.pipes]

    def _pipes_between(self, source: str, sink: str) -> list[Pipe]:
        return [*self.route(source, sink).pipes, *self.route(sink, source).pipes]

    # --- connections ------------------------------------------------------------------------------
    def listen(self, process: Holder, port: str = "", accept: Accept | None = None) -> None:
        """Listen at a process's node, or at one of its ports (`node:port`)."""
        address = f"{process.name}:{port}" if port else process.name
        self._listeners[address] = process, accept or process.accept

    def is_taken(self, address: str) -> bool:
        """Return whether a process listens at `node:port`."""
        return address in self._listeners

    def stop_listening(self, address: str) -> None:
        """Refuse connections to `node:port`."""
        self._listeners.pop(address, None)

    def listen_no_more(self, process: Holder) -> None:
        """Refuse connections to all ports of a process."""
        listeners = self._listeners
        for address in [a for a, (whose, _) in listeners.items() if whose is process]:
            del listeners[address]

    def connect(self, one: Holder, other: Holder) -> tuple[SimStream, SimStream]:
        """Connect two processes; return both ends."""
        left = SimStream(self._medium, one, f"sim://{other.name}")
        right = SimStream(self._medium, other, f"sim://{one.name}")
        left.other, right.other = right, left
        there = self.route(one.name, other.name)
        back = self.route(other.name, one.name)
        left.pipe = right.back_pipe = Pipe(self._medium, left, right, there, back)
        right.pipe = left.back_pipe = Pipe(self._medium, right, left, back, there)
        return left, right

    def dial(
        self,
        process: Holder,
        address: str,
        connected: Callable[[SimStream], None],
        failed: Callable[[str], None],
    ) -> None:
        """Connect `process` to `address`; calls exactly one of the callables, later."""
        Dial(self, process, address, connected, failed)


class Dial:
    """One attempt to connect: a SYN and its answer, each of which may be lost or late."""

    def __init__(
        self,
        network: Network,
        process: Holder,
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
        ours, theirs = network.connect(self._process, listener)
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
