"""The framing of `inproc` connections: messages are passed as objects, without encoding.

Both ends are in one process, so each receives the very objects that the other encodes, in lists
instead of byte strings. Only `inproc` streams can carry them. There is no greeting, limit or
farewell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from requite.principal import Credential

_FEATURES: Final = frozenset(("denied", "principals", "traces", "users"))
_INSIDE: Final = Credential("inside", ("this process",))


class Handover:
    """See `requite.framing.base.Framing`; a message may be any object."""

    __slots__ = ("peer_credential", "peer_features")

    ready: bool = True
    refusal: str = ""
    peer_identity: bytes = b""
    farewell: str = ""
    mid_message: bool = False
    partial_size: int = 0
    login: None = None  # no passwords

    def __init__(self) -> None:
        self.peer_features = _FEATURES
        self.peer_credential: Credential | None = _INSIDE

    def opening(self) -> bytes:
        """Return no bytes: there is no greeting."""
        return b""

    def receive(self, chunk: Any) -> Any:
        """Return the messages of the peer's last flush."""
        return chunk

    def refuse(self, _status: str, /) -> None:
        """Do nothing: the protocol has no words for it."""

    def output(self) -> bytes:
        """Return no bytes: the framing has no output of its own."""
        return b""

    def closing(self) -> bytes:
        """Return no bytes: there is no farewell."""
        return b""

    def encode(self, message: Sequence[bytes], out: list[Any]) -> int:
        """Append a message to the list of the next flush; it counts as one byte."""
        if out:
            out[0].append(message)
        else:
            out.append([message])
        return 1

    def at_end(self) -> None:
        """Do nothing: messages are never cut."""
