"""Assemble a body that arrives in several chunks."""

from __future__ import annotations

from typing import Final

# Smaller parts are joined on arrival. An object costs some 40 bytes, so this keeps the overhead of
# a body near one per cent.
_PART_SIZE_MIN: Final = 4096


class Parts:
    """Buffers the parts of one body and joins them once, in time linear in its size.

    It never allocates for bytes that are only announced. `size` is the number of buffered bytes.
    """

    __slots__ = ("_parts", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] | None = None  # an empty list for each connection takes 56 bytes
        self.size = 0

    def add(self, part: bytes) -> None:
        """Append the next part; small parts are joined, so single bytes cost no object each."""
        parts = self._parts
        self.size += len(part)
        if parts is None:
            self._parts = [part]
        elif len(parts[-1]) < _PART_SIZE_MIN:
            parts[-1] += part
        else:
            parts.append(part)

    def take(self) -> bytes:
        """Return the whole body and clear the buffer."""
        parts, self._parts, self.size = self._parts or [], None, 0
        return parts[0] if len(parts) == 1 else b"".join(parts)
