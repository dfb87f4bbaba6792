"""What waits, in a line per owner: in order per owner, owners in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

OwnerT = TypeVar("OwnerT", bound=Hashable)
Item = TypeVar("Item")


class Lines(Generic[OwnerT, Item]):
    """One item per owner and turn, however many an owner has; `length` counts all."""

    __slots__ = ("_lines", "length")

    def __init__(self) -> None:
        self._lines: OrderedDict[OwnerT, deque[Item]] = OrderedDict()
        self.length = 0

    def push(self, owner: OwnerT, item: Item) -> None:
        """Append an item to its owner's line; a new owner gets the last turn."""
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = deque()
        line.append(item)
        self.length += 1

    def push_back(self, owner: OwnerT, item: Item) -> None:
        """Return an item that was popped in vain: it is the first of its line, with the next
        turn."""
        line = self._lines.setdefault(owner, deque())
        line.appendleft(item)
        self._lines.move_to_end(owner, last=False)
        self.length += 1

    def pop(self, may: Callable[[OwnerT], bool]) -> Item | None:
        """Remove and return the next item of the owners that `may` have one now; None without."""
        lines = self._lines
        for _ in range(len(lines)):
            owner = next(iter(lines))
            lines.move_to_end(owner)
            if may(owner):
                line = lines[owner]
                item = line.popleft()
                if not line:
                    del lines[owner]
                self.length -= 1
                return item
        return None

    def retain(self, waits: Callable[[Item], bool]) -> None:
        """Remove the items that do not wait any more."""
        for owner, line in list(self._lines.items()):
            kept = deque(filter(waits, line))
            self.length -= len(line) - len(kept)
            if kept:
                self._lines[owner] = kept
            else:
                del self._lines[owner]
