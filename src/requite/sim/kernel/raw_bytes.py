"""A framing without a protocol, for intruders."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from requite.principal import Credential


class RawBytes:
    """A `Framing` without a protocol: it sends `opening`, and then all messages, as raw bytes."""

    ready = True
    refusal = ""
    peer_identity = b""
    peer_credential: Credential | None = None
    login: None = None  # no passwords
    peer_features: frozenset[str] = frozenset()
    mid_message = False
    partial_size = 0
    farewell = ""

    def __init__(self, opening: bytes) -> None:
        self._opening = opening

    def opening(self) -> bytes:
        """Return the first bytes."""
        return self._opening

    def receive(self, _chunk: bytes) -> list[list[bytes]]:
        """Ignore received bytes."""
        return []

    def refuse(self, _status: str, /) -> None:
        """Do nothing: the protocol has no words for it."""

    def output(self) -> bytes:
        """Return nothing."""
        return b""

    def encode(self, message: Sequence[bytes], out: list[bytes]) -> int:
        """Append the frames without lengths."""
        out.extend(message)
        return sum(map(len, message))

    def closing(self) -> bytes:
        """Return nothing."""
        return b""

    def at_end(self) -> None:
        """Ignore the end of the stream."""


def spoil(rng: Random, session: bytes) -> bytes:
    """Change, lose or insert a few bytes."""
    spoilt = bytearray(session)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(spoilt))
        spoilt[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
    return bytes(spoilt)
