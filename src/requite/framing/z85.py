"""Z85, the text form of keys (RFC 32): five characters for four bytes, so 40 for a key."""

from __future__ import annotations

from typing import Final

from requite.errors import ConfigurationError

KEY_SIZE: Final = 32
KEY_TEXT_SIZE: Final = 40

_ALPHABET: Final = (
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_VALUES: Final = {character: value for value, character in enumerate(_ALPHABET)}
_BASE: Final = len(_ALPHABET)
_WORDS: Final = 1 << 32


def encode_z85(data: bytes) -> str:
    """Encode bytes, a multiple of four of them."""
    if len(data) % 4:
        raise ValueError(f"Z85 encodes multiples of 4 bytes, not {len(data)}")
    text: list[str] = []
    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "big")
        digits = [_ALPHABET[word // _BASE**place % _BASE] for place in (4, 3, 2, 1, 0)]
        text += digits
    return "".join(text)


def decode_z85(text: str) -> bytes:
    """Decode a text. Raises `ValueError`, which does not quote it, since it may be a secret key."""
    if len(text) % 5:
        raise ValueError(f"Z85 text has a multiple of 5 characters, not {len(text)}")
    data: list[bytes] = []
    for at in range(0, len(text), 5):
        word = 0
        for character in text[at : at + 5]:
            if character not in _VALUES:
                raise ValueError("the text has a character that Z85 does not use")
            word = word * _BASE + _VALUES[character]
        if word >= _WORDS:
            raise ValueError("five characters of the text are a number above 32 bits")
        data.append(word.to_bytes(4, "big"))
    return b"".join(data)


def read_key(key: str | bytes, what: str) -> bytes:
    """Return a key of CURVE as 32 bytes, from these bytes or from Z85 text.

    Raises `ConfigurationError`, which says `what` and does not quote the key.
    """
    try:
        raw = decode_z85(key) if isinstance(key, str) else bytes(key)
    except ValueError as error:
        raise ConfigurationError(f"cannot read {what}: {error}") from None
    if len(raw) != KEY_SIZE:
        raise ConfigurationError(
            f"{what} must have {KEY_TEXT_SIZE} characters (Z85) or {KEY_SIZE} bytes"
        )
    return raw
