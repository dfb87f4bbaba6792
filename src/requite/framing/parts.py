"""The parts of a body that does not come in one chunk."""

from __future__ import annotations

from typing import Final

# Smaller parts are put together as they come. An object costs some 40 bytes, so this keeps what a
# body costs beyond its size near one per cent.
_PART_SIZE_MIN: Final = 4096


class Parts:
    """What has come of one body: kept as it came and joined once, in time linear in its size.

    It never holds room for what was only announced. `size` is what it holds, in bytes.
    """

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.size = 0

    def add(self, part: bytes) -> None:
        """Keep the next part: a peer that sends single bytes does not cost an object for each."""
        parts = self._parts
        self.size += len(part)
        if parts and len(parts[-1]) < _PART_SIZE_MIN:
            parts[-1] += part
        else:
            parts.append(part)

    def take(self) -> bytes:
        """Return the whole body, and hold nothing any more."""
        parts, self._parts, self.size = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)
