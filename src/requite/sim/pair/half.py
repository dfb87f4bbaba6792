"""The shell of one half of a pair in a process; `requite.pair.Pair` is that on an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from requite.backoff import Backoff
from requite.errors import TransportError
from requite.framing.base import Framing
from requite.pair.ends import make_framing
from requite.protocols.binarystar.peer import DIALLED, BinaryStarPeer
from requite.protocols.binarystar.table import State
from requite.protocols.binarystar.view import PairView, SwitchOver, Vote
from requite.shell.connections import Endpoint, PersistentConnection
from requite.shell.link import LinkLimits
from requite.transport.address import TcpAddress

if TYPE_CHECKING:
    from collections.abc import Callable

    from requite.shell.host import Host
    from requite.shell.link import Link
    from requite.sim.kernel.engine_process import EngineProcess
    from requite.sim.kernel.stream import SimStream

_PORT: Final = 5560
_HANDSHAKE_S_MIN: Final = 1.0  # that of `requite.pair.Pair`


class MakeHost(Protocol):
    """Makes the host of a half."""

    def __call__(
        self,
        limits: LinkLimits,
        make_framing: Callable[[], Framing],
        *,
        ended: Callable[[Link, str], None],
    ) -> Host:
        """Return the host; `ended` is told of each link that has ended."""


class HalfShell:
    """The host of a half, whether it serves, and the connection that it dials.

    `at` is the node of the other server, with the port at which it listens.
    """

    def __init__(
        self, process: EngineProcess, engine: BinaryStarPeer, at: str, make_host: MakeHost
    ) -> None:
        self._process = process
        self._engine = engine
        self._at = at
        self._address = TcpAddress(at.partition(":")[0], _PORT)
        self._way = PersistentConnection(
            Endpoint(self._address, make_framing), Backoff(process.rng.random), process.clock
        )
        handshake_s = max(_HANDSHAKE_S_MIN, engine.policy.failover_s)
        limits = LinkLimits(handshake_timeout_s=handshake_s)
        self.host = make_host(limits, make_framing, ended=self._ended)

    # --- whether to serve -------------------------------------------------------------------------
    @property
    def serves(self) -> bool:
        """See `Pair.serves`."""
        return self._process.clock() < self._engine.serves_until

    @property
    def view(self) -> PairView:
        """See `Pair.view`."""
        return self._engine.view(self._process.clock())

    def vote(self) -> bool:
        """See `Pair.vote`."""
        if not self.serves and self._engine.state is not State.FAILED:
            self.host.submit(Vote())
        return self.serves

    def switch(self) -> None:
        """Switch as an operator does, if possible."""
        process = self._process
        if not process.frozen and not self._engine.objection(process.clock()):
            process.turn(self.host.submit, SwitchOver())

    # --- the connection that it dials -------------------------------------------------------------
    def dial(self) -> None:
        """Dial the other server, and keep trying."""
        process = self._process
        if not process.drained:
            process.network.dial(process, self._at, self._connected, self._failed)

    def _connected(self, stream: SimStream) -> None:
        self._process.adopt(stream, lambda: self._open(stream))

    def _open(self, stream: SimStream) -> None:
        self._way.opened(self._address, self.host.opened(stream, kept=True, place=DIALLED))

    def _failed(self, why: str) -> None:
        self._process.later(0.0, self._dial_again, why)

    def _dial_again(self, why: str) -> None:
        self._way.failed(self._address, TransportError(why))
        self._process.later(self._way.pause_s(), self.dial)

    def _ended(self, link: Link, reason: str) -> None:
        if self._way.ended(link, reason):
            self._process.later(self._way.pause_s(), self.dial)
