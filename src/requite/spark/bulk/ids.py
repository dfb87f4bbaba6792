"""The ids of bulk requests: the same for a row however often Spark runs it.

Spark runs user code again: for a failed task, a speculative copy, a second action on a lazy result,
a replayed micro-batch. So a request's id is computed from the job and the row's key. It is a UUID
of version 5 (RFC 9562, section 5.5) and is sent as the idempotency key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

_JOBS: Final = uuid5(NAMESPACE_OID, "requite.spark.bulk")


def job_id(job: str | UUID | None) -> UUID:
    """Return the namespace of a job's request ids: derived from its name, random for None."""
    if isinstance(job, UUID):
        return job
    return uuid4() if job is None else uuid5(_JOBS, job)


def request_ids(job: UUID, names: Iterable[bytes | None]) -> list[bytes]:
    """Return the 16 bytes of `uuid5(job, name)` for each name, b"" for None.

    `uuid.uuid5` takes five times as long, most of it to create UUID objects.
    """
    namespace = job.bytes
    return [b"" if name is None else _uuid5(namespace + name) for name in names]


def _uuid5(text: bytes) -> bytes:
    digest = bytearray(sha1(text, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50  # the version
    digest[8] = digest[8] & 0x3F | 0x80  # the variant
    return bytes(digest)


def position_names(scope: str, partition: int, first_row: int, count: int) -> list[bytes]:
    """Name rows by position: stable only while partitions and their order stay the same."""
    return [b"%b:%d:%d" % (scope.encode(), partition, row + first_row) for row in range(count)]


def id_text(request_id: bytes) -> str:
    """Return an id in the text form of UUIDs (RFC 9562, section 4)."""
    digits = request_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def repetitions(ids: Sequence[bytes]) -> dict[int, int]:
    """Map each row that repeats an earlier row's id to the first row with that id."""
    known = list(filter(None, ids))
    if len(set(known)) == len(known):
        return {}
    first: dict[bytes, int] = {}
    found = {}
    for row, one in enumerate(ids):
        if one and (earlier := first.setdefault(one, row)) != row:
            found[row] = earlier
    return found
