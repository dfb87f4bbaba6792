"""The processes of a run, by role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from requite.errors import ConfigurationError
from requite.sim.kernel.fault_injection import NodePair, choose

if TYPE_CHECKING:
    from requite.sim.kernel.network import Network
    from requite.sim.kernel.process import Process
    from requite.sim.kernel.stream import SimStream
    from requite.sim.kernel.world import World


class Stage(Protocol):
    """The parts of a run's shared state that every cast needs."""

    @property
    def world(self) -> World:
        """The virtual clock and the events."""

    @property
    def network(self) -> Network:
        """The network between the processes."""


class Cast:
    """All processes of a run, not yet started.

    `roles` has the processes that follow the protocols; faults are named by these roles.
    `intruders` send garbage. The processes in `exposed` (all, by default) have the connections that
    faults may break; `ways` are the pairs of connected nodes that partitions separate.
    """

    def __init__(
        self,
        stage: Stage,
        roles: Mapping[str, Sequence[Process]],
        intruders: Sequence[Process] = (),
        exposed: Sequence[Process] | None = None,
        ways: Sequence[NodePair] = (),
    ) -> None:
        self.stage = stage
        self.world = stage.world
        self.network = stage.network
        self.roles = roles
        self.intruders = intruders
        self.honest = [process for members in roles.values() for process in members]
        self._ways = ways
        self._exposed = self.honest if exposed is None else exposed

    def client(self, name: str) -> Any:
        """Return the client of that name. Raises `ConfigurationError` if there is none."""
        for client in self.roles["client"]:
            if client.name == name:
                return client
        raise ConfigurationError(f"calls: client: there is no {name!r} in this run")

    def choose_nodes(self, lot: float) -> NodePair:
        """Choose two connected nodes."""
        return choose(self._ways, lot)

    def streams(self) -> Sequence[SimStream]:
        """Return the open ends of the connections that faults may break."""
        return [stream for p in self._exposed for stream in p.streams if stream.is_open]
