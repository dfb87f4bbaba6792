"""The process of a device."""

from __future__ import annotations

from requite.engine import Engine
from requite.protocols.scalability.policy import DevicePolicy
from requite.sim.scalability.knobs import DeviceSpec
from requite.sim.scalability.party import Party, SpStage


class Device(Party):
    """A device; it has peers, but no user."""

    kind = "device"

    def __init__(self, spec: DeviceSpec, stage: SpStage) -> None:
        super().__init__(spec.name, stage, spec.first_id)
        self.spec = spec

    def make_engine(self) -> Engine:
        """Return a new device engine."""
        policy = DevicePolicy(
            hops=self.stage.knobs.hops, hold_s=self.stage.knobs.hold_s, notes=True
        )
        return self.stage.parts.device(policy, first_id=self.draw_first_id())
