"""Interned strings: a segment defines each string once, and its rows refer to it by number."""

from __future__ import annotations

from requite.journal.blocks import NO_STRING, STRING_SIZE_MAX


class Strings(dict[bytes, int]):
    """The numbers of a segment's strings. The lookup of a new one assigns a number and adds it to
    `fresh`, until its definition has been written.

    The empty string has the number 0 and no definition.
    """

    __slots__ = ("fresh",)

    def __init__(self) -> None:
        super().__init__({b"": NO_STRING})
        self.fresh: list[tuple[int, bytes]] = []

    def __missing__(self, string: bytes) -> int:
        number = self[string] = len(self)
        self.fresh.append((number, string[:STRING_SIZE_MAX]))
        return number


def encode_text(text: str) -> bytes:
    """Encode a text as UTF-8, truncated between characters if it is too long."""
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= STRING_SIZE_MAX:
        return encoded
    return encoded[:STRING_SIZE_MAX].decode(errors="ignore").encode()
