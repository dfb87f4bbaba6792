"""A measurement for the throughput law: one number of slots, with one handler."""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.amqp.slotted_peer import WORK_S

HANDLERS: Final = {
    "echo": "the handler answers at once",
    "work": f"the handler waits for {WORK_S * 1000:.0f} ms",
}


class Point(NamedTuple):
    """Rate of a client with a number of slots; `cores` used by all processes together."""

    handler: str
    servants: int
    slots: int
    calls_per_s: float
    latency_s: float
    cores: float

    @property
    def law(self) -> float:
        """The rate that the law predicts."""
        return self.slots / self.latency_s
