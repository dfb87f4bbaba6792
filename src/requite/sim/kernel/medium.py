"""The state that all routes of a simulated network share: latency, chunking, power of nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from requite.sim.kernel.world import World

# Short enough to cut greetings and headers, long enough to deliver bodies in pieces.
_PIECE_SIZE_MAX: Final = 200


class Chunking(StrEnum):
    """Where a stream of bytes is cut on arrival."""

    WHOLE = "whole"  # the bytes of one write arrive together
    RANDOM = "random"  # sometimes only their first part
    BYTES = "bytes"  # sometimes a single byte


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of the network without faults.

    One way takes `latency_s` plus up to `jitter_s`, and `spike_s` more with probability `spike_p`.
    A sender gives up after `retransmit_s` without acknowledgement (real networks take minutes,
    longer than a run); an idle end detects a lost peer after `keepalive_s`. A stream applies
    back-pressure while the other end has more than `buffer_size` unread bytes.
    """

    latency_s: float = 0.001
    jitter_s: float = 0.0
    spike_p: float = 0.0
    spike_s: float = 0.0
    chunking: Chunking = Chunking.WHOLE
    retransmit_s: float = 15.0
    keepalive_s: float = 10.0
    connect_timeout_s: float = 5.0
    buffer_size: int = 64 << 10


class Medium:
    """Draws latencies and chunk borders; once it `is_healed`, without latency spikes."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.random = world.rng("network").random
        self.is_healed = False
        self._down: set[str] = set()

    def is_up(self, node: str) -> bool:
        """Whether the machine has power; its process may still be down."""
        return node not in self._down

    def power_off(self, node: str) -> None:
        """Cut power to a machine."""
        self._down.add(node)

    def power_on(self, node: str) -> None:
        """Restore power to a machine."""
        self._down.discard(node)

    def latency_s(self) -> float:
        """Draw the latency of the next bytes."""
        shape, random = self.shape, self.random
        latency_s = shape.latency_s + shape.jitter_s * random()
        if shape.spike_p and not self.is_healed and random() < shape.spike_p:
            latency_s += shape.spike_s * random()
        return latency_s

    def border(self, size: int) -> int:
        """Draw how many of `size` available bytes the first read returns."""
        chunking = self.shape.chunking
        if chunking is Chunking.WHOLE or size < 2 or self.random() < 0.7:
            return size
        if chunking is Chunking.BYTES and self.random() < 0.5:
            return 1
        return 1 + int(self.random() * min(size - 1, _PIECE_SIZE_MAX))
