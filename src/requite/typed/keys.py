"""Find in encoded messages what decoders change without a word.

Of an object with a key twice, they take the last value; other readers of the same bytes may take
the first. Times of MessagePack have nanoseconds, which they round to those of Python.
"""

from __future__ import annotations

import json
from typing import Any, Final


def _pairs(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"an object has the key {key!r} twice")
        seen.add(key)


_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=len, parse_float=len, parse_constant=len
)


def check_json_keys(body: bytes) -> None:
    """Raise `ValueError` for JSON, known to be well-formed, with an object that has a key twice."""
    _JSON.decode(body.decode())


def check_msgpack_keys(body: bytes) -> None:
    """Raise `ValueError` for MessagePack, known to be well-formed, with a map that has a key
    twice. Source: the MessagePack specification, "Formats"."""
    open_: list[_Open] = []
    at = 0
    while True:
        began, (at, items, is_map) = at, _head(body, at)
        if items:
            open_.append(_Open(items, is_map))
            continue
        end = at
        while open_:  # the value has ended, and with it perhaps those around it
            if not open_[-1].took(body[began:end]):
                break
            open_.pop()
            began = -1
        if not open_:
            return


def check_msgpack_times(body: bytes) -> None:
    """Raise `ValueError` for MessagePack, known to be well-formed, with a time finer than a
    microsecond. Source: the MessagePack specification, "Timestamp extension type"."""
    at = 0
    while at < len(body):
        if body[at : at + 2] == b"\xd7\xff":  # 30 bits of nanoseconds, 34 of seconds
            nanoseconds = int.from_bytes(body[at + 2 : at + 6], "big") >> 2
        elif body[at : at + 3] == b"\xc7\x0c\xff":  # 32 bits of nanoseconds, 64 of seconds
            nanoseconds = int.from_bytes(body[at + 3 : at + 7], "big")
        else:
            nanoseconds = 0
        if nanoseconds % 1000:
            raise ValueError(f"a time with {nanoseconds} ns is finer than a microsecond")
        at, _, _ = _head(body, at)


class _Open:
    """An array or map that is being read: the items to come, and the keys of a map."""

    __slots__ = ("_is_key", "_is_map", "_keys", "_left")

    def __init__(self, items: int, is_map: bool) -> None:
        self._left = items
        self._is_map = self._is_key = is_map
        self._keys: set[bytes] = set()

    def took(self, item: bytes) -> bool:
        """Count an item; return whether it was the last one."""
        if self._is_map:
            if self._is_key:
                if item in self._keys:
                    raise ValueError("a map has a key twice")
                self._keys.add(item)
            self._is_key = not self._is_key
        self._left -= 1
        return not self._left


_SIZES: Final = {
    0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4,
}  # fmt: skip
_FIXED: Final = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1,
    0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_GROUPS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_EXTENSIONS: Final = (0xC7, 0xC8, 0xC9)


def _head(body: bytes, at: int) -> tuple[int, int, bool]:
    """Read a value's head and, unless it is an array or map with items, its data.

    Returns where it ends, the number of items to come (two for each pair), and whether it is a map.
    """
    byte = body[at]
    at += 1
    if byte <= 0x7F or byte >= 0xE0:  # small integers
        return at, 0, False
    if byte <= 0x8F:
        return at, 2 * (byte & 0x0F), True
    if byte <= 0x9F:
        return at, byte & 0x0F, False
    if byte <= 0xBF:
        return at + (byte & 0x1F), 0, False
    if byte in _FIXED:
        return at + _FIXED[byte], 0, False
    if byte in _GROUPS:
        width, per_item = _GROUPS[byte]
        count = int.from_bytes(body[at : at + width], "big")
        return at + width, count * per_item, per_item == 2
    width = _SIZES[byte]
    size = int.from_bytes(body[at : at + width], "big")
    return at + width + size + (byte in _EXTENSIONS), 0, False
