"""Clients whose users repeat the calls of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requite.sim.clients import ClientProcess
from requite.sim.history import Call
from requite.sim.knobs import ClientSpec
from requite.sim.roles import Stage
from requite.sim.user import User

if TYPE_CHECKING:
    from collections.abc import Mapping

    from requite.engine import Engine
    from requite.sim.workload import CallPlan


class DedupClient(ClientProcess):
    """A client whose call ids are its own in each life: that is what workers know its calls by."""

    user: KeyedUser

    def __init__(self, spec: ClientSpec, stage: Stage) -> None:
        super().__init__(spec, stage)
        self.user = KeyedUser(
            self,
            stage.history,
            stage.transcript,
            lambda plan: plan.frames,
            tries_max=spec.tries,
            is_told=True,
            has_keys=True,
        )

    def make_engine(self) -> Engine:
        """Make a client, with an origin that nobody else has."""
        engine = super().make_engine()
        engine._origin = b"%-4b%4d" % (self.name[-1:].encode(), self.life)  # type: ignore[attr-defined]
        return engine


class KeyedUser(User):
    """A user who gives some calls the key of another; `keys` has those by number."""

    keys: Mapping[int, bytes] = {}

    def _call(self, plan: CallPlan, timeout_s: float) -> Call:
        call = super()._call(plan, timeout_s)
        call.key = self.keys.get(plan.number, call.key)
        return call
