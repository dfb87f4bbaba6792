"""What the engine of a store is told and answers, beside the inputs and effects of all engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from requite.dedup.records import NO_DIGEST, DedupRecord


class Asked(NamedTuple):
    """A request has come. `key` tells it from all others (empty: nothing does), `digest` is that of
    its body (zeros: bodies need not be compared)."""

    token: Any
    request: Any
    key: bytes
    digest: bytes = NO_DIGEST


class GivenUp(NamedTuple):
    """Nobody waits any more for the reply to what was asked under `token`."""

    token: Any
    reason: str


class Interrupted(NamedTuple):
    """These requests have nobody any more who runs them, or waits for them: a worker has closed,
    and stopped its handlers wherever they were."""

    tokens: Sequence[Any]


class Discard(NamedTuple):
    """Remove a segment of the log: no record in it is needed. An effect."""

    segment: int


class Found(NamedTuple):
    """A record that was on the log when it was opened: its place, and its size there."""

    record: DedupRecord
    position: Any
    size: int
