"""Masks of WebSocket, which clients apply to the payload of each frame (RFC 6455, section 5.3).

This module imports wsproto; the first WebSocket imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from wsproto.frame_protocol import XorMaskerSimple

MASK_SIZE: Final = 4

# Random bytes are drawn in blocks: four at a time would cost more than the rest of a message.
_KEYS_SIZE: Final = 1024

# Above this, wsproto masks faster than a single operation on long numbers.
_NUMBER_SIZE_MAX: Final = 1024


def draw_keys(masks: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield new keys without end, from a source of random bytes."""
    while True:
        block = masks(_KEYS_SIZE)
        for at in range(0, _KEYS_SIZE, MASK_SIZE):
            yield block[at : at + MASK_SIZE]


def mask(data: bytes | memoryview, key: bytes) -> bytes:
    """Mask or unmask a payload: 15 bytes in 0.5 us (CPython 3.11), a third of wsproto's time."""
    size = len(data)
    if size > _NUMBER_SIZE_MAX:
        return bytes(XorMaskerSimple(key).process(bytearray(data)))
    keys = (key * (size // MASK_SIZE + 1))[:size]
    number = int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")
    return number.to_bytes(size, "little")
