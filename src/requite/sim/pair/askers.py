"""Clients, as the Guide wants them: they ask one server, and after a while the other one.

They are no processes of their own: what matters is which server a request reaches, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from requite.sim.pair.ledger import Ledger, Question
    from requite.sim.pair.server import PairServer, PairStage
    from requite.sim.world import Act

_PAUSE: Final = 0.25  # of a heartbeat, between two tries


class Asker:
    """A client. `reach`: the servers that it can reach, the one to ask first in front."""

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
        """Make a call; it is tried until it is answered."""
        self._try(self._ledger.asked(number))

    def _try(self, question: Question) -> None:
        question.tries += 1
        server = self.reach[0]
        self._later(self._way_s(), self._arrive, server, question, question.tries)
        self._world.after(self._knobs.patience_s, self._give_up, question, question.tries)

    def _arrive(self, server: PairServer, question: Question, tries: int) -> None:
        """Reach a server; one that is not there refuses, one without power says nothing."""
        if server.alive:
            life = server.life
            server.reached(lambda: self._put(server, life, question, tries))
        elif server.network.is_up(server.name):
            self._later(self._way_s(), self._give_up, question, tries)

    def _put(self, server: PairServer, life: int, question: Question, tries: int) -> None:
        """Be the request that a server reads, in a turn of its own."""
        if server.life != life:
            return
        if not server.vote():
            self._later(self._way_s(), self._give_up, question, tries)
        elif question.answered_at is None:
            self._ledger.serves(server, question)
            self._later(self._way_s(), self._answered, server, server.half.epoch, question)

    def _answered(self, server: PairServer, epoch: int, question: Question) -> None:
        if question.answered_at is None:
            self._ledger.answered(server, epoch, question)

    def _give_up(self, question: Question, tries: int) -> None:
        """Try the other server, after a pause."""
        if question.answered_at is not None or question.tries != tries:
            return
        question.tries += 1  # what comes of the last one is not waited for
        self.reach.append(self.reach.pop(0))
        self._later(_PAUSE * self._knobs.heartbeat_s * self._random(), self._try, question)

    def _later(self, delay_s: float, act: Act, *args: object) -> None:
        self._world.after(delay_s, act, *args)

    def _way_s(self) -> float:
        shape = self._knobs.network
        return shape.latency_s + shape.jitter_s * self._random()
