"""Erasure of one principal's replies from a log that no worker has open.

All records that are still needed are copied to the end of the log, without the erased replies; then
everything before the copies is removed. After a crash in between, the copies count, and another
erasure removes the rest.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import NamedTuple

from requite.dedup.inputs import Found
from requite.dedup.policy import DedupPolicy
from requite.dedup.records import (
    NO_DIGEST,
    DedupRecord,
    Kind,
    encode,
    principal_of,
)
from requite.dedup.store import PURPOSE, open_log, read_log, read_payload
from requite.errors import ConfigurationError
from requite.storage import Log, LogReader


class Erased(NamedTuple):
    """How many requests of the principal were found, and how many of their replies were erased."""

    requests: int
    replies: int


def erase(
    directory: str | PathLike[str],
    principal: str,
    key_file: str | PathLike[str] | None = None,
) -> Erased:
    """Remove the stored replies to a principal's requests from the log in a folder.

    It stays known until the end of their window that the requests have run: repetitions get a
    negative reply. `key_file` has the keys of an encrypted log. Raises `LogLocked` if a worker uses
    the log, `ConfigurationError` if there is none, and another `StorageError` if it cannot be
    rewritten; then nothing has been removed.
    """
    folder = Path(directory)
    if not folder.is_dir() or not any(
        segment.purpose == PURPOSE for segment in LogReader(folder).segments()
    ):
        raise ConfigurationError(f"{folder} has no log of replies (`requite.Dedup`)")
    with open_log(folder, DedupPolicy(), key_file) as log:
        old = [sealed.number for sealed in log.sealed]
        erased = _copy(log, principal.encode())
        log.sync()
        for number in old:
            log.remove(number)
    return erased


def _copy(log: Log, principal: bytes) -> Erased:
    """Copy the last record of each key to the end of the log, those of a principal without a
    reply."""
    last: dict[bytes, Found] = {}
    for found in read_log(log):
        last.pop(found.record.key, None)
        if found.record.kind is not Kind.DROPPED:
            last[found.record.key] = found
    requests = replies = 0
    for record, position, _size in last.values():
        if principal_of(record.key) == principal:
            requests += 1
            replies += record.kind is Kind.ENDED
            log.append([encode(_without_reply(record))])
        else:
            log.append([read_payload(log, position)])
    return Erased(requests, replies)


def _without_reply(record: DedupRecord) -> DedupRecord:
    """Return the record of the same request without its reply, and without a digest of its body:
    all repetitions are refused."""
    kind = Kind.UNKEPT if record.kind is Kind.ENDED else record.kind
    return record._replace(kind=kind, digest=NO_DIGEST)
