"""The slotted client's table: at most N outstanding calls, each matched in constant time.

A fixed array and a stack of free slots. A request id consists of the slot and a 32-bit sequence
number that is new for each use, so that a late or duplicate reply to an earlier use is recognised
and dropped (I2). Source: "RPC over AMQP", sections "The slotted client" and "Handling all slots
being occupied".
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from requite.errors import ConfigurationError

Held = TypeVar("Held")

SLOTS_MAX: Final = 1 << 31  # slot and sequence share a u64 whose top bit stays free
_SEQUENCE_BITS: Final = 32
_SEQUENCE_MASK: Final = (1 << _SEQUENCE_BITS) - 1


class Slots(Generic[Held]):
    """A table of `n` slots. Ids are integers below 2**63: slot << 32 | sequence.

    `first_sequence` should be random per start, so that replies to an earlier process have wrong
    sequence numbers.
    """

    __slots__ = ("_free", "_held", "_ids", "_sequence")

    def __init__(self, n: int, first_sequence: int = 0) -> None:
        if not 0 < n < SLOTS_MAX:
            raise ConfigurationError(f"a client must have between 1 and 2**31 slots, not {n}")
        self._held: list[Held | None] = [None] * n
        self._ids = [-1] * n
        self._free = list(range(n - 1, -1, -1))  # a stack: the slot freed last is used next
        self._sequence = first_sequence & _SEQUENCE_MASK

    def __len__(self) -> int:
        return len(self._held) - len(self._free)

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self._held)

    def take(self, held: Held) -> int | None:
        """Put `held` into a free slot and return its id, or None when all are taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._held[slot] = held
        return self._number(slot)

    def renumber(self, request_id: int) -> int:
        """Give a taken slot a new sequence number: replies to the old id are stale from now on."""
        return self._number(request_id >> _SEQUENCE_BITS)

    def get(self, request_id: int) -> Held | None:
        """Return the object with exactly this id, or None for an unknown or stale id."""
        slot = request_id >> _SEQUENCE_BITS
        if slot < len(self._ids) and self._ids[slot] == request_id:
            return self._held[slot]
        return None

    def free(self, request_id: int) -> Held | None:
        """Free the slot and return what it held, or None for an unknown or stale id."""
        slot = request_id >> _SEQUENCE_BITS
        ids = self._ids
        if slot >= len(ids) or ids[slot] != request_id:
            return None
        held = self._held[slot]
        ids[slot] = -1
        self._held[slot] = None
        self._free.append(slot)
        return held

    def _number(self, slot: int) -> int:
        self._sequence = (self._sequence + 1) & _SEQUENCE_MASK
        request_id = slot << _SEQUENCE_BITS | self._sequence
        self._ids[slot] = request_id
        return request_id
