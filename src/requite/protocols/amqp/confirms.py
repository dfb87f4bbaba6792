"""What RabbitMQ has yet to confirm of a channel's publishings, by the numbers it counts them by.

Source: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from requite.protocols.amqp.methods import Confirmed

What = TypeVar("What")


class Confirms(Generic[What]):
    """The publishings of one channel; `what` stands for each until it is confirmed."""

    __slots__ = ("_number", "_waiting")

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, What] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[What]:
        return iter(self._waiting.values())

    def begin(self) -> None:
        """Begin to count anew: the channel is another one."""
        self._number = 0

    def forget(self) -> None:
        """Wait for none of them any more."""
        self._waiting.clear()

    def published(self, what: What) -> None:
        """Note the next publishing."""
        self._number += 1
        self._waiting[self._number] = what

    def take(self, confirmed: Confirmed) -> list[What]:
        """Return what is confirmed now; what is not waited for is not in it."""
        waiting = self._waiting
        if not confirmed.multiple:
            return [waiting.pop(confirmed.tag)] if confirmed.tag in waiting else []
        numbers = [number for number in waiting if number <= confirmed.tag]
        return [waiting.pop(number) for number in numbers]
