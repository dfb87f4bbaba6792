"""Clients as in the Guide: each sends a request to one server, and after a timeout to the other.

They are not simulated processes: only the server that a request reaches, and the time, matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from requite.sim.kernel.world import Act
    from requite.sim.pair.ledger import Ledger, PairRequest
    from requite.sim.pair.server import PairServer, PairStage

_PAUSE: Final = 0.25  # between two attempts, in heartbeats


class PairClient:
    """A client. `reach`: the servers that it can reach, in the order of its attempts."""

    def __init__(
        self, name: str, stage: PairStage, ledger: Ledger, reach: Sequence[PairServer]
    ) -> None:
        self.name = name
        self.reach = list(reach)
        self._world = stage.world
        self._ledger = ledger
        self._knobs = stage.knobs
        self._random = stage.world.rng(name).random

    def ask(self, number: int) -> None:
        """Make a call; it is retried until it is answered."""
        self._try(self._ledger.asked(number))

    def _try(self, request: PairRequest) -> None:
        request.tries += 1
        server = self.reach[0]
        self._later(self._way_s(), self._arrive, server, request, request.tries)
        self._world.after(self._knobs.patience_s, self._give_up, request, request.tries)

    def _arrive(self, server: PairServer, request: PairRequest, tries: int) -> None:
        """Handle the arrival at a server: a stopped process refuses the request, a machine without
        power drops it."""
        if server.alive:
            server.turn(self._put, server, request, tries)
        elif server.network.is_up(server.name):
            self._later(self._way_s(), self._give_up, request, tries)

    def _put(self, server: PairServer, request: PairRequest, tries: int) -> None:
        """Deliver the request to the server, in a turn of its event loop."""
        if not server.vote():
            self._later(self._way_s(), self._give_up, request, tries)
        elif request.answered_at is None:
            self._ledger.serves(server, request)
            self._later(self._way_s(), self._answered, server, server.half.epoch, request)

    def _answered(self, server: PairServer, epoch: int, request: PairRequest) -> None:
        if request.answered_at is None:
            self._ledger.answered(server, epoch, request)

    def _give_up(self, request: PairRequest, tries: int) -> None:
        """Try the other server, after a pause."""
        if request.answered_at is not None or request.tries != tries:
            return
        request.tries += 1  # an answer to the last attempt is ignored
        self.reach.append(self.reach.pop(0))
        self._later(_PAUSE * self._knobs.heartbeat_s * self._random(), self._try, request)

    def _later(self, delay_s: float, act: Act, *args: object) -> None:
        self._world.after(delay_s, act, *args)

    def _way_s(self) -> float:
        shape = self._knobs.network
        return shape.latency_s + shape.jitter_s * self._random()
