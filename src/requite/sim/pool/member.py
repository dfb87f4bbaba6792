"""The base of the programs of a pool: a process whose connections can break."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from requite.sim.kernel.pipe import RESET
from requite.sim.kernel.program import Program

if TYPE_CHECKING:
    from requite.sim.pool.stage import PoolStage


class Member(Program):
    """A manager, a worker or a caller."""

    def __init__(
        self, name: str, stage: PoolStage, main: Callable[[], Coroutine[Any, Any, object]]
    ) -> None:
        super().__init__(name, stage.world, stage.network, stage.knobs.pace, stage.supervisor, main)
        self.stage = stage

    def kill(self, notice_s: float = 0.0) -> None:
        """Crash; with `notice_s`, RabbitMQ detects it only by a keepalive."""
        if notice_s:
            self.lose_power()
        else:
            self.crash()

    def cut(self, client_delay_s: float, server_delay_s: float) -> None:
        """Break the connections; the two ends detect it after these delays."""
        for stream in self.streams:
            for end, delay_s in ((stream, client_delay_s), (stream.other, server_delay_s)):
                end.pipe.sever()
                self.world.after(delay_s, end.end, RESET)
