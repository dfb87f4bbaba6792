"""What is said to Titanic and by it: services, statuses, tickets (9/TSP, and what requite adds).

| service | request frames | reply frames |
|---|---|---|
| `titanic.request` | service, body... | status; with 200: ticket |
| `titanic.reply` | ticket | status; with 200: body... |
| `titanic.close` | ticket | status |
| `titanic.list` | cursor, limit, state (all optional) | 200, lines of JSON, the next cursor or "" |
| `titanic.stats` | anything | 200, a JSON object |
| `titanic.show` | ticket | 200, a line as in the list, request frames..., reply frames... |
| `titanic.retry` | ticket | status |
| `titanic.promote` | anything | status |
| `titanic.replicate` | see `requite.protocols.titanic.replication` | status, next number |

A status is three digits, and for 400 and 500 a space and what is wrong, which is for people: no
program may go by it. Where a request was given up, `titanic.reply` answers 400 with two frames
more: the word `poisoned`, and why. A ticket is a UUID as 32 hex digits. It is written in upper
case, as the Guide does, and read in any.
"""

from __future__ import annotations

import re
from binascii import Error, unhexlify
from collections.abc import Sequence
from typing import Final, NamedTuple

from requite.errors import RemoteViolation

REQUEST: Final = "titanic.request"
REPLY: Final = "titanic.reply"
CLOSE: Final = "titanic.close"
LIST: Final = "titanic.list"
STATS: Final = "titanic.stats"
SHOW: Final = "titanic.show"
RETRY: Final = "titanic.retry"
PROMOTE: Final = "titanic.promote"
REPLICATE: Final = "titanic.replicate"
STANDARD_SERVICES: Final = (REQUEST, REPLY, CLOSE)
SERVICES: Final = (*STANDARD_SERVICES, LIST, STATS, SHOW, RETRY, PROMOTE, REPLICATE)
PREFIX: Final = b"titanic."
"""Requests for these services are not stored: Titanic would wait for itself."""

MMI_SERVICE: Final = "mmi.service"
MMI_PREFIX: Final = b"mmi."

OK: Final = b"200"
PENDING: Final = b"300"
UNKNOWN: Final = 400
ERROR: Final = 500
STATUSES: Final = (200, 300, 400, 500)
POISONED: Final = b"poisoned"
"""The second frame of a 400 where the request is kept, and will not be tried again."""

SERVICE_SIZE_MAX: Final = 255
KEY_SIZE_MAX: Final = 255
UUID_SIZE: Final = 16
TICKET_SIZE: Final = 32

_STATUS: Final = re.compile(rb"([0-9]{3})(?: (.*))?", re.DOTALL)
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TEXT_SIZE_MAX: Final = 1000


class TitanicStatus(NamedTuple):
    """The first frame of an answer: one of `STATUSES`, and what it says besides.

    `is_poisoned`: the request is known, and was given up; more than the first frame tells that.
    """

    code: int
    text: str
    is_poisoned: bool = False


def encode_ticket(uuid: bytes) -> bytes:
    """Write 16 bytes as 32 hex digits in upper case."""
    return uuid.hex().upper().encode()


def decode_ticket(frame: bytes) -> bytes:
    """Return the 16 bytes of a ticket, or raise `RemoteViolation` for anything else."""
    try:
        uuid = unhexlify(frame) if len(frame) == TICKET_SIZE else b""
    except Error:
        uuid = b""
    if uuid:
        return uuid
    shown = frame[:40].decode("ascii", "replace")
    more = "" if len(frame) <= 40 else f"... ({len(frame)} bytes)"
    raise RemoteViolation(f"{shown!r}{more} is no ticket, which has 32 hex digits")


def refusal(code: int, text: str) -> bytes:
    """Write a status frame with the reason in it."""
    return f"{code} {text[:_TEXT_SIZE_MAX]}".encode()


def decode_status(frame: bytes) -> TitanicStatus:
    """Read a status frame, or raise `RemoteViolation` for one that TSP does not know."""
    match = _STATUS.fullmatch(frame)
    if match is None or int(match[1]) not in STATUSES:
        raise RemoteViolation(f"{frame[:40]!r} is no status of Titanic: {STATUSES}")
    return TitanicStatus(int(match[1]), (match[2] or b"").decode("utf-8", "replace"))


def decode_answer(frames: Sequence[bytes]) -> TitanicStatus:
    """Read the status of an answer, with what its other frames say of it; see `decode_status`."""
    status = decode_status(frames[0] if frames else b"")
    if status.code == UNKNOWN and list(frames[1:2]) == [POISONED]:
        return status._replace(is_poisoned=True)
    return status


def check_service(name: bytes) -> str:
    """Return the service that a request is for as text, or raise `RemoteViolation`.

    A name has 1 to 255 bytes of UTF-8 without control characters, as in MDP; Titanic's own services
    and those of the broker are not for later.
    """
    if not 1 <= len(name) <= SERVICE_SIZE_MAX:
        raise RemoteViolation(f"a service name has 1 to {SERVICE_SIZE_MAX} bytes, not {len(name)}")
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation(f"the service name {name!r} is not UTF-8") from error
    if _CONTROL_CHARACTERS.search(text):
        raise RemoteViolation(f"the service name {text!r} has control characters")
    if name.startswith((PREFIX, MMI_PREFIX)):
        raise RemoteViolation(f"requests for {text} are answered at once, and never stored")
    return text
