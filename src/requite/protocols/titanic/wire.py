"""Titanic's services, statuses and tickets (9/TSP, with requite's additions).

| service | request frames | reply frames |
|---|---|---|
| `titanic.request` | service, body... | status; with 200: ticket |
| `titanic.reply` | ticket | status; with 200: body... |
| `titanic.close` | ticket | status |
| `titanic.list` | cursor, limit, state (all optional) | 200, lines of JSON, the next cursor or "" |
| `titanic.stats` | anything | 200, a JSON object |
| `titanic.show` | ticket | 200, a line as in the list, request frames..., reply frames... |
| `titanic.retry` | ticket | status |
| `titanic.erase` | owner, cursor (optional) | 200, number of requests, the next cursor or "" |
| `titanic.promote` | anything | status |
| `titanic.replicate` | see `requite.protocols.titanic.replication` | status, next number |

A status is three digits, for 400 and 500 followed by a space and an error text for people; programs
must not parse it. For a poisoned request, `titanic.reply` answers 400 with two more frames: the
word `poisoned`, and the reason. For a stored negative reply a fourth frame follows, the word
`final`; the third one is the reason of the negative reply. A ticket is a UUID as 32 hex digits,
written in upper case, as in the Guide, and accepted in any case.
"""

from __future__ import annotations

import re
from binascii import Error, unhexlify
from collections.abc import Sequence
from typing import Final, NamedTuple

from requite.errors import RemoteViolation
from requite.request import FINAL

REQUEST: Final = "titanic.request"
REPLY: Final = "titanic.reply"
CLOSE: Final = "titanic.close"
LIST: Final = "titanic.list"
STATS: Final = "titanic.stats"
SHOW: Final = "titanic.show"
RETRY: Final = "titanic.retry"
ERASE: Final = "titanic.erase"
PROMOTE: Final = "titanic.promote"
REPLICATE: Final = "titanic.replicate"
STANDARD_SERVICES: Final = (REQUEST, REPLY, CLOSE)
SERVICES: Final = (*STANDARD_SERVICES, LIST, STATS, SHOW, RETRY, ERASE, PROMOTE, REPLICATE)
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
"""The second frame of a 400 if the request is stored but will not be retried."""

SERVICE_SIZE_MAX: Final = 255
KEY_SIZE_MAX: Final = 255
TICKET_SIZE: Final = 32

_STATUS: Final = re.compile(rb"([0-9]{3})(?: (.*))?", re.DOTALL)
_CONTROL_CHARACTERS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TEXT_SIZE_MAX: Final = 1000


class TitanicStatus(NamedTuple):
    """The status of an answer: one of `STATUSES`, and its text.

    `is_poisoned`: the request is known and will not be retried; further frames say so.
    `is_negative`: a negative reply is stored, and `text` is its reason.
    """

    code: int
    text: str
    is_poisoned: bool = False
    is_negative: bool = False


def encode_ticket(uuid: bytes) -> bytes:
    """Encode 16 bytes as 32 hex digits in upper case."""
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
    raise RemoteViolation(f"{shown!r}{more} is not a ticket (32 hex digits)")


def refusal(code: int, text: str) -> bytes:
    """Encode a status frame with an error text."""
    return f"{code} {text[:_TEXT_SIZE_MAX]}".encode()


def encode_reply(frames: Sequence[bytes], *, is_negative: bool) -> Sequence[bytes]:
    """Encode the answer with a stored reply; of a negative one, the only frame is the reason."""
    if not is_negative:
        return OK, *frames
    status = refusal(UNKNOWN, f"refused: {frames[0].decode('utf-8', 'replace')}")
    return status, POISONED, frames[0], FINAL


def decode_status(frame: bytes) -> TitanicStatus:
    """Decode a status frame, or raise `RemoteViolation` for a status that TSP does not have."""
    match = _STATUS.fullmatch(frame)
    if match is None or int(match[1]) not in STATUSES:
        raise RemoteViolation(f"{frame[:40]!r} is not a status of Titanic: {STATUSES}")
    return TitanicStatus(int(match[1]), (match[2] or b"").decode("utf-8", "replace"))


def decode_answer(frames: Sequence[bytes]) -> TitanicStatus:
    """Decode the status of an answer, including the frames after it; see `decode_status`."""
    status = decode_status(frames[0] if frames else b"")
    if status.code == UNKNOWN and list(frames[1:2]) == [POISONED]:
        if list(frames[3:4]) == [FINAL]:
            return TitanicStatus(UNKNOWN, frames[2].decode("utf-8", "replace"), is_negative=True)
        return status._replace(is_poisoned=True)
    return status


def check_service(name: bytes) -> str:
    """Return the name of a request's service as text, or raise `RemoteViolation`.

    A name has 1 to 255 bytes of UTF-8 without control characters, as in MDP. Requests for services
    of Titanic and the broker are refused: they cannot be stored.
    """
    if not 1 <= len(name) <= SERVICE_SIZE_MAX:
        raise RemoteViolation(
            f"a service name must have 1 to {SERVICE_SIZE_MAX} bytes, not {len(name)}"
        )
    try:
        text = name.decode()
    except UnicodeDecodeError as error:
        raise RemoteViolation(f"the service name {name!r} is not UTF-8") from error
    if _CONTROL_CHARACTERS.search(text):
        raise RemoteViolation(f"the service name {text!r} has control characters")
    if name.startswith((PREFIX, MMI_PREFIX)):
        raise RemoteViolation(
            f"requests for {text} cannot be stored, because the broker or Titanic answers them"
            " at once"
        )
    return text
