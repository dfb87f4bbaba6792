"""`titanic.erase`: closes all requests of an owner, and has their bodies removed from the disk.

Closed requests of the owner may still be on the disk as well, in segments that are mostly in use.
So each page ends with a record that demands the removal of everything before it that is not needed,
whosever it was. The record is part of the log: it survives restarts, and replicas follow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.errors import RemoteViolation, StorageError
from requite.protocols.titanic import records
from requite.protocols.titanic.collecting import Collecting
from requite.protocols.titanic.core import Core
from requite.protocols.titanic.listing import decode_cursor
from requite.protocols.titanic.wire import ERROR, OK, UNKNOWN

_CLOSED_MAX: Final = 1000  # per page: the engine must not be blocked
_SCANNED_MAX: Final = 50_000


class Erasing:
    """Closes an owner's requests page by page, and forgets their idempotency keys."""

    def __init__(self, core: Core, collecting: Collecting) -> None:
        self._core = core
        self._collecting = collecting

    def erase(self, token: Any, frames: Sequence[bytes], _owner: bytes, _now: float) -> None:
        """Close the requests of the owner in the first frame, from the cursor in the second on.

        Answer once that is stored: with the number of closed requests, and the next cursor.
        """
        core = self._core
        if core.why_inactive:
            core.refuse(token, ERROR, f"{core.why_inactive}; send this to the active Titanic")
            return
        try:
            owner, serial = _decode(frames)
        except RemoteViolation as violation:
            core.refuse(token, UNKNOWN, str(violation))
            return
        count, cursor = self._close_page(owner, serial)
        if not cursor:
            self._forget_keys(owner)
        answer = (token, b"%d" % count, cursor)
        core.enter(records.encode_erasure(core.now_us), answer, self._erased, self._not_erased)

    def _close_page(self, owner: bytes, serial: int) -> tuple[int, bytes]:
        """Close the next requests of an owner; return their number and the next cursor."""
        count = 0
        for scanned, request in enumerate(self._core.register.after(serial)):
            if count == _CLOSED_MAX or scanned == _SCANNED_MAX:
                return count, b"%d" % (request.serial - 1)
            if request.owner.name == owner and request.closing is None:
                self._core.register.drop_key(request)
                self._collecting.begin_closing(request, [], expired=False)
                count += 1
        return count, b""

    def _forget_keys(self, owner: bytes) -> None:
        """Store that the keys of an owner's closed requests are not valid any more."""
        core = self._core
        for uuid in core.register.drop_closed_keys(owner):
            record = records.encode_closed(uuid, core.now_us, b"", 0)
            core.enter(record, None, _nothing, _nothing)

    def _erased(self, answer: tuple[Any, bytes, bytes], _location: Any, _now: float) -> None:
        token, count, cursor = answer
        self._core.answer(token, OK, count, cursor)

    def _not_erased(
        self, answer: tuple[Any, bytes, bytes], error: StorageError, _now: float
    ) -> None:
        self._core.not_stored(answer[0], error)


def _decode(frames: Sequence[bytes]) -> tuple[bytes, int]:
    """Return the owner and the serial number of the cursor, or raise `RemoteViolation`."""
    if not frames:
        raise RemoteViolation("the first frame must be the owner of the requests to erase")
    return frames[0], decode_cursor(frames[1] if len(frames) > 1 else b"")


def _nothing(_what: Any, _outcome: Any, _now: float) -> None:
    """Ignore whether a record was stored: the last one of the page tells."""
