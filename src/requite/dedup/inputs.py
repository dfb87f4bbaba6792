"""Inputs and effects of the dedup engine, in addition to those of `requite.engine`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from requite.dedup.records import NO_DIGEST, DedupRecord


class Asked(NamedTuple):
    """A request. `key` identifies it and its repetitions (empty: nothing does); `digest` is that of
    its body (zeros: unknown)."""

    token: Any
    request: Any
    key: bytes
    digest: bytes = NO_DIGEST


class GivenUp(NamedTuple):
    """The caller does not wait any more for the reply under `token`."""

    token: Any
    reason: str


class Interrupted(NamedTuple):
    """A worker has closed: the handlers of these requests were stopped, and no caller waits."""

    tokens: Sequence[Any]


class Discard(NamedTuple):
    """Effect: remove a segment of the log, whose records are not needed any more."""

    segment: int


class Found(NamedTuple):
    """A record found when the log was opened, with its position and payload size."""

    record: DedupRecord
    position: Any
    size: int
