"""Clients whose users repeat the calls of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requite.sim.majordomo.knobs import ClientSpec
from requite.sim.majordomo.parties import ClientProcess, Stage

if TYPE_CHECKING:
    from requite.engine import Engine


class DedupClient(ClientProcess):
    """A client with unique call ids per start: workers identify its calls by them."""

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec, stage, carries_idempotency=True)

    def make_engine(self) -> Engine:
        """Return a new client engine with a unique origin."""
        engine = super().make_engine()
        engine._origin = b"%-4b%4d" % (self.name[-1:].encode(), self.life)  # type: ignore[attr-defined]
        return engine
