"""The names under which Titanic asks its store for something; they come back with the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from requite.errors import StorageError
from requite.protocols.titanic.requests import DurableRequest


class Since(NamedTuple):
    """A log position for `Load`: all records from `number` on, as many as fit into `size_max`
    bytes, as one batch of `requite.protocols.titanic.replication`.

    Where some of them have been removed, or with `begins`, it is the first batch of everything.
    """

    number: int
    size_max: int
    begins: bool = False


class Submissions(NamedTuple):
    """SUBMITTED records, one for each of `requests`."""

    requests: list[DurableRequest]


class Entry(NamedTuple):
    """A record of another kind, and what is to be done when it is stored, or cannot be.

    `stored(what, location, now)`, `failed(what, error, now)`.
    """

    what: Any
    stored: Callable[[Any, Any, float], None]
    failed: Callable[[Any, StorageError, float], None]


class Entries(NamedTuple):
    """Records of other kinds, one for each of `entries`."""

    entries: list[Entry]


class ForDispatch(NamedTuple):
    """A SUBMITTED is read, to be sent to a worker."""

    request: DurableRequest


class ForReply(NamedTuple):
    """An ANSWERED is read, for whoever asked under `token`."""

    token: Any
    request: DurableRequest


class ForShow(NamedTuple):
    """A SUBMITTED or an ANSWERED is read, to be shown under `token`; `frames`: of the request, if
    the reply is what is read."""

    token: Any
    request: DurableRequest
    frames: list[bytes] | None = None


class ForReplica(NamedTuple):
    """Records are read, to be sent to the replica."""

    since: int
