"""Encoding of `titanic.list`, `titanic.show` and `titanic.stats`.

A request to `titanic.list` has up to three frames: a cursor ("": from the beginning), a limit ("":
1000), and a state ("": all). The answer has one line of JSON per request, oldest first, and the
cursor of the next page, "" at the end. `titanic.show` answers with one such line, with the counts
`request_frames` and `reply_frames`, followed by these frames. Times are microseconds since 1970.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from requite.errors import RemoteViolation
from requite.protocols.titanic.requests import DurableRequest, Register, State

if TYPE_CHECKING:
    from requite.protocols.titanic.core import TitanicSnapshot

LIMIT_DEFAULT: Final = 1000
LIMIT_MAX: Final = 10_000
_SCANNED_MAX: Final = 50_000  # per page: filtering by a rare state must not block the engine


class Question(NamedTuple):
    """A request for a page of the list."""

    cursor: int
    limit: int
    state: str


def decode_question(frames: Sequence[bytes]) -> Question:
    """Decode a request for a page of the list, or raise `RemoteViolation`."""
    cursor, limit, state = (*frames[:3], b"", b"", b"")[:3]
    wanted = state.decode("ascii", "replace")
    if wanted and wanted not in {one.value for one in State}:
        known = ", ".join(one.value for one in State)
        raise RemoteViolation(f"unknown state {wanted!r}; the states are {known}")
    count = _number(limit, LIMIT_DEFAULT, "limit")
    return Question(decode_cursor(cursor), min(max(count, 1), LIMIT_MAX), wanted)


def decode_cursor(frame: bytes) -> int:
    """Decode a cursor, or raise `RemoteViolation`."""
    return _number(frame, 0, "cursor")


def page(register: Register, question: Question) -> tuple[bytes, bytes]:
    """Return the lines of a page and the cursor of the next one."""
    lines: list[bytes] = []
    for scanned, request in enumerate(register.after(question.cursor)):
        if len(lines) == question.limit or scanned == _SCANNED_MAX:
            return b"\n".join(lines), b"%d" % (request.serial - 1)
        if not question.state or request.state.value == question.state:
            lines.append(details(request))
    return b"\n".join(lines), b""


def details(request: DurableRequest, **more: int) -> bytes:
    """Return the details of a request as a line of JSON."""
    return _json(
        {
            "ticket": request.ticket,
            "owner": request.owner.text,
            "service": "" if request.lane is None else request.lane.text,
            "state": request.state.value,
            "attempts": request.attempts,
            "submitted_us": request.submitted_us,
            "answered_us": request.answered_us,
            "size": request.size,
            "reply_size": request.reply_size,
            "negative": request.is_negative,
            "reason": request.reason,
            "key": request.key.decode("utf-8", "replace"),
            **more,
        }
    )


def stats(snapshot: TitanicSnapshot, facts: Mapping[str, Any]) -> bytes:
    """Return the counts and additional facts as a JSON object."""
    return _json(snapshot._asdict() | dict(facts))


def _number(frame: bytes, default: int, what: str) -> int:
    if not frame:
        return default
    if not (len(frame) <= 18 and frame.isdigit()):
        raise RemoteViolation(f"the {what} of a list must be a number, not {frame[:20]!r}")
    return int(frame)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
