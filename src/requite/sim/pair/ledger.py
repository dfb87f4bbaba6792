"""Record which server answers which call, and check I1 and I12."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from requite.protocols.binarystar.table import State

if TYPE_CHECKING:
    from requite.protocols.binarystar.view import PairView
    from requite.sim.kernel.history import History
    from requite.sim.pair.knobs import PairKnobs
    from requite.sim.pair.server import PairServer


@dataclass(slots=True)
class PairRequest:
    """A call of a client: when it was made and answered, by which server, in which epoch."""

    number: int
    asked_at: float
    tries: int = 0
    answered_at: float | None = None
    by: str = ""
    epoch: int = 0

    def __str__(self) -> str:
        return f"call {self.number}"


class Ledger:
    """Check I12: only one server answers per epoch, in a timely run only one at a time. I1: each
    call is answered once."""

    def __init__(self, history: History, knobs: PairKnobs) -> None:
        self.requests: dict[int, PairRequest] = {}
        self.servers: Sequence[PairServer] = ()
        self._history = history
        self._knobs = knobs
        self._epoch_owners: dict[int, str] = {}
        self._newest: tuple[int, PairServer | None, int] = (0, None, 0)

    def asked(self, number: int) -> PairRequest:
        """Record a new call."""
        request = self.requests[number] = PairRequest(number, self._history.world.now)
        return request

    def serves(self, server: PairServer, request: PairRequest) -> None:
        """Check a server that is about to answer."""
        epoch = server.half.epoch
        before = self._epoch_owners.setdefault(epoch, server.name)
        if before != server.name:
            self._violate("I12", f"{server.name} answers in epoch {epoch}, as did {before}")
        if self._knobs.timely:
            self._check_alone(server, request)

    def _check_alone(self, server: PairServer, request: PairRequest) -> None:
        self._check_no_other(server, server.half.epoch, f"answers {request}")
        epoch, (newest, reigning, life) = server.half.epoch, self._newest
        # If the newest server has crashed, no server may know its epoch.
        if epoch < newest and reigning is not server and reigning and reigning.life == life:
            self._violate("I12", f"{server.name} answers in epoch {epoch} after epoch {newest}")
        self._newest = epoch, server, server.life

    def _check_no_other(self, server: PairServer, epoch: int, what: str) -> None:
        for other in self.servers:
            if other is not server and other.alive and not other.frozen and other.serves:
                both = f"both serve, in epochs {epoch} and {other.half.epoch}"
                self._violate("I12", f"{server.name} {what}; {both}")

    def answered(self, server: PairServer, epoch: int, request: PairRequest) -> None:
        """Record an answer that a client received."""
        request.answered_at = self._history.world.now
        request.by, request.epoch = server.name, epoch

    def changed(self, server: PairServer, view: PairView) -> None:
        """Check the new state of a server. Two correctly configured servers never need an operator
        to resolve a contradiction."""
        if view.state is State.FAILED:
            self._violate("fatal", f"{server.name} gives up: {view.trouble}")
        elif view.state is State.ACTIVE and view.epoch % 2 != server.role % 2:
            self._violate("I12", f"{server.name} serves in epoch {view.epoch}, not its own")
        elif view.serves and self._knobs.timely:
            self._check_no_other(server, view.epoch, "reports that it serves")

    @property
    def open(self) -> list[PairRequest]:
        """The calls without an answer."""
        return [each for each in self.requests.values() if each.answered_at is None]

    @property
    def outcomes(self) -> dict[str, int]:
        """The number of calls answered by each server."""
        return dict(sorted(Counter(q.by or "nobody" for q in self.requests.values()).items()))

    @property
    def lines(self) -> list[str]:
        """The lines of the digest: equal for equal runs."""
        requests = self.requests.values()
        return [str((q.number, q.tries, q.answered_at, q.by, q.epoch)) for q in requests]

    def _violate(self, invariant: str, text: str) -> None:
        self._history.violate(invariant, text)
