"""Tickets of `Store` and `Load` effects; the store returns them with its answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from requite.errors import StorageError
from requite.protocols.titanic.requests import DurableRequest


class Since(NamedTuple):
    """A log position for `Load`: all records from `number` on, as many as fit into `size_max`
    bytes, as one batch of `requite.protocols.titanic.replication`.

    If some of them have been removed, or with `begins`, it is the first batch of a full copy.
    """

    number: int
    size_max: int
    begins: bool = False


class Submissions(NamedTuple):
    """SUBMITTED records, one for each of `requests`."""

    requests: list[DurableRequest]


class Entry(NamedTuple):
    """A record of another kind, with its callbacks: `stored(what, location, now)` and
    `failed(what, error, now)`."""

    what: Any
    stored: Callable[[Any, Any, float], None]
    failed: Callable[[Any, StorageError, float], None]


class Entries(NamedTuple):
    """Records of other kinds, one for each of `entries`."""

    entries: list[Entry]


class ForDispatch(NamedTuple):
    """Read a SUBMITTED to dispatch it."""

    request: DurableRequest


class ForReply(NamedTuple):
    """Read an ANSWERED of `size` bytes to answer `titanic.reply` of `owner` under `token`."""

    token: Any
    request: DurableRequest
    owner: bytes
    size: int


class ForShow(NamedTuple):
    """Read a SUBMITTED, or with `frames` of the request an ANSWERED, to answer `titanic.show`."""

    token: Any
    request: DurableRequest
    frames: list[bytes] | None = None


class ForRepeat(NamedTuple):
    """Read a SUBMITTED to compare it with `body`, submitted under `token` with the same key."""

    token: Any
    request: DurableRequest
    body: Sequence[bytes]


class ForReplica(NamedTuple):
    """Read records for the replica."""

    since: int
