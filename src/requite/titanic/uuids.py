"""UUIDs of version 4, many at a time: to ask the system for each of them cost 1.5 us more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

_SIZE: Final = 16
_AT_A_TIME: Final = 256
# RFC 9562, section 5.4: where version and variant are, and what they make of a random byte.
_VERSION_AT: Final = 6
_VARIANT_AT: Final = 8
_VERSION: Final = bytes(byte & 0x0F | 0x40 for byte in range(256))
_VARIANT: Final = bytes(byte & 0x3F | 0x80 for byte in range(256))


def uuids() -> Iterator[bytes]:
    """Yield UUIDs, 16 bytes each, without end."""
    while True:
        many = bytearray(os.urandom(_SIZE * _AT_A_TIME))
        many[_VERSION_AT::_SIZE] = many[_VERSION_AT::_SIZE].translate(_VERSION)
        many[_VARIANT_AT::_SIZE] = many[_VARIANT_AT::_SIZE].translate(_VARIANT)
        whole = bytes(many)
        for at in range(0, len(whole), _SIZE):
            yield whole[at : at + _SIZE]
