"""First messages of no dialect of MDP: their known senders, and advice.

| first message | sender |
|---|---|
| `AA A4 ...`, ... | zeromq/majordomo since 2015, whose frames are packed by zproto |
| "", `MDPC02`, 02, ... and "", `MDPW02`, ... | majortomo 0.2 |
| "", `MDPC02`, ... | a REQ socket; zeromq/majordomo, tag wire-protocol-0.2 |
| "", `MDPC0X`, ... and "", `MDPW0X`, ... | libmdp, an experiment before MDP 0.2 |
| `MDPC01`, ... and `MDPW01`, ... | a DEALER socket without the empty frame of REQ sockets |
| 01 | a worker of a Pirate queue (READY) |
"""

from __future__ import annotations

import re
from typing import Final

from requite.engine import Message

_UNKNOWN: Final = "its first message does not match any dialect of MDP"

_ZPROTO: Final = b"\xaa\xa4"
_PIRATE_READY: Final = b"\x01"
_MAGIC: Final = re.compile(rb"MDP[CW][0-9]{2}")
_SPOKEN: Final = "0.1 (RFC 7), 0.2 (RFC 18) and 0.3"
_USE_RFC: Final = f"use a peer with one of the supported dialects: {_SPOKEN}"


def describe(message: Message) -> str:
    """Return the error for a first message unknown to `dialects.detect`, with advice if the sender
    is known."""
    hint = _hint(message)
    return f"{_UNKNOWN}: {hint}" if hint else _UNKNOWN


def _hint(message: Message) -> str:
    first = message[0] if message else b""
    if first.startswith(_ZPROTO):
        return f"it is encoded with zproto, as in zeromq/majordomo since 2015; {_USE_RFC}"
    if list(message) == [_PIRATE_READY]:
        return "it is the READY of a Pirate worker; connect that worker to a `requite queue`"
    magic = (first or (message[1] if len(message) > 1 else b""))[:6]
    if magic in (b"MDPC0X", b"MDPW0X"):
        return f"{magic.decode()!r} is the experimental protocol of libmdp; {_USE_RFC}"
    if _MAGIC.fullmatch(magic) is None:
        return ""
    shown = magic.decode()
    if magic.endswith(b"01") and first:
        return (
            f"{shown!r} has no empty frame before it; MDP 0.1 requires one, which a REQ socket"
            " adds and a DEALER socket must send itself"
        )
    if magic[4:] in (b"02", b"03"):
        return (
            f"{shown!r} has an empty frame before it{_as_majortomo(message)}; send it as the"
            " first frame, from a DEALER socket (RFC 18), or use MDP 0.1"
        )
    return f"it announces {shown}; the supported dialects are {_SPOKEN}"


def _as_majortomo(message: Message) -> str:
    is_worker = message[1].startswith(b"MDPW02")
    return ", as majortomo sends it" if is_worker or list(message[2:3]) == [b"\x02"] else ""
