"""Lets pamqp read what others have put into messages, whatever that is.

pamqp raises at a routing key that is no UTF-8, or a header that is malformed; aiormq ends the
connection then. RabbitMQ delivers the message again on the next one, and so without end: one bad
message would keep a manager from all others. So bytes that are no UTF-8 are read with replacement
characters, and a table that cannot be read is taken for an empty one.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from pamqp import decode

_strict_table: Final = decode.field_table


def _short_string(value: bytes) -> tuple[int, str]:
    if not value:
        raise ValueError("a short string is cut")
    end = 1 + value[0]
    return end, value[1:end].decode("utf-8", "replace")


def _table(value: bytes) -> tuple[int, Any]:
    try:
        return _strict_table(value)
    except (ValueError, struct.error):
        if len(value) < 4:
            raise
        return 4 + int.from_bytes(value[:4], "big"), {}


def read_anything() -> None:
    """Have pamqp read so from now on, in the whole process; to do so again does nothing."""
    decode.METHODS["shortstr"] = _short_string
    decode.METHODS["table"] = _table
