"""How rows become the bodies of requests, and replies the values of a column."""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa

from requite.spark.bulk.outcome import Outcome


class Messages(Protocol):
    """How rows become bodies, and replies values of the type `reply_type`.

    `refusal` is the outcome of all rows if none may be sent.
    """

    reply_type: pa.DataType
    refusal: Outcome | None

    def encode(self, column: pa.Array) -> tuple[list[Any], dict[int, str]]:
        """Return each row's body: bytes, a list of frames, or None; and the faults of rows."""

    def decode(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return outcomes with the values of their replies."""


class Bytes:
    """Messages that are bytes."""

    reply_type = pa.binary()
    refusal: Outcome | None = None

    def encode(self, column: pa.Array) -> tuple[list[Any], dict[int, str]]:
        """Return the bodies."""
        return bodies_of(column), {}

    def decode(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes."""
        return outcomes


BYTES: Final = Bytes()


def bodies_of(column: pa.Array) -> list[Any]:
    """Return each row's body: bytes, a list of frames, or None."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.cast(pa.binary() if pa.types.is_string(column.type) else pa.large_binary())
    bodies: list[Any] = column.to_pylist()
    return bodies
