"""Unconfirmed publishings of a channel, by RabbitMQ's delivery tags.

Source: RabbitMQ, "Consumer Acknowledgements and Publisher Confirms".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from requite.protocols.amqp.methods import Confirmed

What = TypeVar("What")


class Confirms(Generic[What]):
    """The unconfirmed publishings of one channel, each represented by a `what` of the user's."""

    __slots__ = ("_number", "_waiting")

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, What] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[What]:
        return iter(self._waiting.values())

    def begin(self) -> None:
        """Count from 1 again, for a new channel."""
        self._number = 0

    def forget(self) -> None:
        """Drop all unconfirmed publishings."""
        self._waiting.clear()

    def published(self, what: What) -> None:
        """Add the next publishing."""
        self._number += 1
        self._waiting[self._number] = what

    def take(self, confirmed: Confirmed) -> list[What]:
        """Remove and return the publishings that are confirmed; ignore unknown tags."""
        waiting = self._waiting
        if not confirmed.multiple:
            return [waiting.pop(confirmed.tag)] if confirmed.tag in waiting else []
        numbers = [number for number in waiting if number <= confirmed.tag]
        return [waiting.pop(number) for number in numbers]
